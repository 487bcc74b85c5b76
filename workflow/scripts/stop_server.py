"""End the server and prove that nothing of it is left."""

import argparse

from crossover.errors import plain_errors
from crossover.server.stop import stop, told

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("handle")
parser.add_argument("stopped")
args = parser.parse_args()

with plain_errors():
    print(told(stop(args.handle, args.stopped)))
