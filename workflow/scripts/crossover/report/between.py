"""What is drawn between the measured levels: straight lines that agree with the crossings.

Without the crossings, an estimate would meet 1 elsewhere than at C*, and its band elsewhere than at
the ends of C*'s interval: the verdict does not interpolate along straight lines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from crossover.report.figure import Figure

Rows = list[dict[str, Any]]


def estimates(figure: Figure) -> Rows:
    """The levels' ratios, and 1 at every C*."""
    at_one = [
        {"variant": c["variant"], "level": c["c_star"], "ratio": 1.0}
        for c in figure.crossings
        if c["c_star"] is not None
    ]
    return [*figure.means, *at_one]


def band(figure: Figure) -> Rows:
    """The levels' bounds, of which one is 1 at either end of a crossing's interval."""
    bounded = [m for m in figure.means if m["lo"] is not None and m["hi"] is not None]
    return [row for v in figure.variants for row in _band_of(v, bounded, figure.crossings)]


def _band_of(variant: str, bounded: Rows, crossings: Rows) -> Rows:
    mine = [m for m in bounded if m["variant"] == variant]
    if not mine:
        return []
    edges = {side: {m["level"]: m[side] for m in mine} for side in ("lo", "hi")}
    for c in crossings:
        if c["variant"] == variant and None not in (c["lo"], c["hi"]):
            first, second = ("lo", "hi") if c["direction"] == "down" else ("hi", "lo")
            edges[first].setdefault(c["lo"], 1.0)
            edges[second].setdefault(c["hi"], 1.0)
    levels = sorted({level for edge in edges.values() for level in edge})
    lo, hi = (_along(edges[side], levels) for side in ("lo", "hi"))
    return [
        {"variant": variant, "level": level, "lo": low, "hi": high}
        for level, low, high in zip(levels, lo, hi, strict=True)
    ]


def _along(edge: dict[float, float], levels: list[float]) -> list[float]:
    """The edge at all levels, straight in their logarithm."""
    known = sorted(edge.items())
    logs = [math.log(level) for level, _ in known]
    return np.interp([math.log(n) for n in levels], logs, [v for _, v in known]).tolist()
