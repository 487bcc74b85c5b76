"""How far a run has come: which points it was to measure, and which exist by now."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crossover.files import write_json


def write(point_files: Iterable[str | Path], path: str | Path) -> None:
    """Write down, when a run begins, the points of its campaign and which are missing."""
    files = [str(f) for f in point_files]
    missing = [f for f in files if not Path(f).exists()]
    write_json({"began_at": time.time(), "points": len(files), "missing": missing}, path)


@dataclass(frozen=True)
class Standing:
    """A run's progress. `eta_s` is None until the run has measured a point."""

    points: int
    done: int
    eta_s: float | None

    @classmethod
    def read(cls, path: str | Path) -> Standing | None:
        """Where the run stands now; None: it was not written down (a single job by hand)."""
        try:
            run = json.loads(Path(path).read_text())
        except (FileNotFoundError, ValueError):
            return None
        left = sum(not Path(f).exists() for f in run["missing"])
        measured = len(run["missing"]) - left
        elapsed_s = time.time() - run["began_at"]
        return cls(
            points=run["points"],
            done=run["points"] - left,
            eta_s=elapsed_s / measured * left if measured else None,
        )
