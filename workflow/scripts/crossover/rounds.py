"""The rounds of refinement that were planned: facts on disk, each planned once.

A round is one more trial of the variants whose comparison needs it. What it measures was chosen
from the points before it (`crossover.refine`) and stays, however these are judged later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from crossover.files import write_json

FIRST_TRIAL = 101
"""Trial of round 1: `load.trials` reaches no such number, so that it can be raised later."""


class RoundPoint(NamedTuple):
    """A point that a round measures."""

    variant: str
    workload: str
    concurrency: int
    long_window: bool = False
    """see `Load.with_long_windows`"""


def trial_of(number: int) -> int:
    """The trial that the sessions of a round are."""
    return FIRST_TRIAL + number - 1


@dataclass(frozen=True)
class Step:
    """What a comparison was found to need before a round."""

    variant: str
    baseline: str
    workload: str | None
    outcome: str
    """measure, measure_longer; or why there is nothing to: target, decided, hopeless,
    not_comparable"""
    levels: tuple[int, ...]
    """empty where there is nothing to measure"""
    why: str

    @property
    def points(self) -> set[RoundPoint]:
        """The levels, of both arms."""
        long_window = self.outcome == "measure_longer"
        return {
            RoundPoint(arm, self.workload, level, long_window)
            for arm in (self.variant, self.baseline)
            for level in self.levels
        }


@dataclass(frozen=True)
class Round:
    """One round of refinement."""

    number: int
    steps: tuple[Step, ...]
    points: tuple[RoundPoint, ...]
    """empty if `stopped`"""
    stopped: str | None = None
    """done: no comparison needs more; max_points: what it would measure exceeds that"""

    @property
    def trial(self) -> int:
        """The trial that its sessions are."""
        return trial_of(self.number)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        points = [point._asdict() for point in self.points]
        steps = [asdict(step) for step in self.steps]
        return {
            "round": self.number,
            "trial": self.trial,
            "stopped": self.stopped,
            "points": points,
            "comparisons": steps,
        }


def file_of(folder: Path, number: int) -> Path:
    """Where a round's plan stands."""
    return folder / f"round~{number}.json"


def write(planned: Round, path: str | Path) -> None:
    """Write a plan, whole or not at all."""
    write_json(planned.to_dict(), path)


def read(path: Path) -> Round:
    """The plan in a file."""
    plan = json.loads(path.read_text())
    return Round(
        plan["round"],
        tuple(Step(**{**step, "levels": tuple(step["levels"])}) for step in plan["comparisons"]),
        tuple(RoundPoint(**point) for point in plan["points"]),
        plan["stopped"],
    )


def planned(folder: Path, most: int) -> Iterator[Round]:
    """The rounds in turn, up to `most`, to the first that is not planned or stopped."""
    for number in range(1, most + 1):
        path = file_of(folder, number)
        if not path.exists():
            return
        yield (found := read(path))
        if found.stopped:
            return
