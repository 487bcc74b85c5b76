"""Print what a campaign will cost before it starts: `make plan`, `make plan CAMPAIGN=FILE`."""

import argparse

from crossover.campaign import read_campaign
from crossover.errors import plain_errors
from crossover.plan import cost

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("campaign", help="campaign file")
args = parser.parse_args()

with plain_errors():
    print(cost(read_campaign(args.campaign)))
