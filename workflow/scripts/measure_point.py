"""Measure one point: variant × workload × concurrency × trial, on a live server."""

import argparse
import gc
import json
import sys
from pathlib import Path

from crossover.errors import plain_errors
from crossover.point import measure_to
from crossover.progress import Terminal
from crossover.server import processes


class WithoutNumpy:
    """An import hook under which there is neither numpy nor pandas in this job.

    pyarrow imports them, a third of a second, only to see that no list of ours is of theirs.
    """

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Say that those two are not installed, and nothing about other modules."""
        if name in ("numpy", "pandas"):
            raise ModuleNotFoundError("not imported in this job", name=name)


sys.meta_path.insert(0, WithoutNumpy)
gc.disable()  # collections would stop the loop for as long as all kept reads take to walk

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("spec", type=json.loads)
parser.add_argument("health")
parser.add_argument("point")
args = parser.parse_args()

with plain_errors(), Terminal() as terminal:
    point = measure_to(Path(args.point).parent, args.spec, args.health, processes.owner(), terminal)
    print(json.dumps(point, indent=1))
