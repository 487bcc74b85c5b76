"""Print what a campaign will cost before it starts: `make plan`, `make plan CAMPAIGN=FILE`."""

import argparse

from crossover.campaign_file import read_campaign
from crossover.errors import plain_errors
from crossover.imports.files import result_files
from crossover.plan import cost
from crossover.workflow import notes

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("campaign", help="campaign file")
args = parser.parse_args()

with plain_errors():
    campaign = read_campaign(args.campaign)
    if campaign.imports:
        files = result_files(campaign.imports)
        print(f"nothing to measure: {len(files)} files of {campaign.imports} are imported")
    else:
        print(cost(campaign))
    for note in notes(campaign):
        print(f"note: {note}")
