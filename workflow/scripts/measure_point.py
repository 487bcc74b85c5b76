"""Measure one point: variant × workload × concurrency × trial, on a live server."""

import argparse
import json
from pathlib import Path

from crossover import workflow
from crossover.errors import plain_errors
from crossover.point import measure_to
from crossover.progress import Terminal

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("spec", type=json.loads)
parser.add_argument("health")
parser.add_argument("point")
args = parser.parse_args()

with plain_errors(), Terminal() as terminal:
    point = measure_to(Path(args.point).parent, args.spec, args.health, workflow.owner(), terminal)
    print(json.dumps(point, indent=1))
