"""List, or remove, results that the given campaign files do not name any more: `make unused`."""

import argparse
import shutil

from crossover.campaign_file import read_campaign
from crossover.errors import plain_errors
from crossover.unused import unused

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("campaigns", nargs="+", help="campaign files")
parser.add_argument("--remove", action="store_true", help="remove them")
args = parser.parse_args()

with plain_errors():
    campaigns = [read_campaign(file) for file in args.campaigns]
    for folder in unused(campaigns):
        print(folder)
        if args.remove:
            shutil.rmtree(folder)
