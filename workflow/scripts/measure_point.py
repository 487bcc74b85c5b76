"""Measure one point: variant × workload × concurrency × trial, on a live server."""

import gc
import sys


class Unused:
    """An import hook under which modules are missing that others import and this job never uses.

    pyarrow asks whether lists are numpy's or pandas', and httpx has a command line; together they
    take longer to import than all the rest.
    """

    names = ("numpy", "pandas", "httpx._main")

    @classmethod
    def find_spec(cls, name: str, *_: object) -> None:
        """Say that they are not installed, and nothing about other modules."""
        if name in cls.names:
            raise ModuleNotFoundError("not imported in this job", name=name)


sys.meta_path.insert(0, Unused)
gc.disable()  # collections would stop the loop for as long as all kept reads take to walk

import argparse
import json
from pathlib import Path

from crossover.errors import plain_errors
from crossover.point import measure_to
from crossover.progress import Terminal
from crossover.server import processes

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("spec", type=json.loads)
parser.add_argument("health")
parser.add_argument("point")
args = parser.parse_args()

with plain_errors(), Terminal() as terminal:
    point = measure_to(Path(args.point).parent, args.spec, args.health, processes.owner(), terminal)
    print(json.dumps(point, indent=1))
gc.freeze()  # nor is anything walked at the end
