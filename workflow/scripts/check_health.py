"""Wait until the server has answered a request of ours; write down what it says it runs."""

import argparse
import json
from dataclasses import asdict

from crossover.campaign import Variant
from crossover.errors import plain_errors
from crossover.progress import Terminal
from crossover.server.readiness import check

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("spec", type=json.loads)
parser.add_argument("handle")
parser.add_argument("health")
args = parser.parse_args()

with plain_errors(), Terminal() as terminal:
    variant = Variant.from_dict(args.spec["variant"])
    ready = check(args.handle, args.health, variant, report=terminal.show)
    print(f"{variant.name}: ready after {ready.ready_after_s:.1f} s; {asdict(ready.description)}")
