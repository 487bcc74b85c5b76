"""Print what a campaign will cost before it starts: `make plan`, `make plan CAMPAIGN=FILE`."""

import argparse
from pathlib import Path

import yaml

from crossover.campaign import load_campaign
from crossover.errors import CampaignError, plain_errors
from crossover.plan import cost

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("campaign", help="campaign file")
args = parser.parse_args()

with plain_errors():
    try:
        config = yaml.safe_load(Path(args.campaign).read_text())
    except OSError as error:
        raise CampaignError(f"cannot read {args.campaign}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise CampaignError(f"{args.campaign} is not YAML: {error}") from None
    print(cost(load_campaign(config, args.campaign)))
