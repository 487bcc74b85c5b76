"""What the levels of a campaign are levels of: requests in flight, or requests a second."""

from __future__ import annotations

import math
from typing import NamedTuple


class Axis(NamedTuple):
    """One of the two axes of a load."""

    name: str
    """column of `records.POINTS`, the key of a level in verdicts.json, part of a point's path"""
    words: str
    unit: str
    """said after a level; empty where `words` are said before it"""
    loop: str
    closed_loop: bool
    """Whole numbers of requests in flight; the operational laws hold on this axis alone."""

    def level(self, value: float) -> float:
        """A level as it is keyed and written: whole numbers as such."""
        return int(value) if self.closed_loop or float(value).is_integer() else float(value)

    def at(self, *levels: object) -> str:
        """`concurrency 1, 4`; `0.5, 2 requests/s`."""
        shown = ", ".join(map(str, levels))
        return f"{shown} {self.unit}" if self.unit else f"{self.words} {shown}"

    def below(self, place: float) -> str:
        """A place between levels as it is said: down to a whole concurrency; a rate as it is."""
        return str(whole(place)) if self.closed_loop else f"{place:.3g}"


def whole(concurrency: float) -> int:
    """The whole concurrency at or below; one that was computed as 9.999… stays 10."""
    return math.floor(concurrency + 1e-9)


CLOSED_LOOP = Axis("concurrency", "concurrency", "", "closed loop", closed_loop=True)
OPEN_LOOP = Axis("request_rate", "request rate", "requests/s", "open loop", closed_loop=False)
AXES = {axis.name: axis for axis in (CLOSED_LOOP, OPEN_LOOP)}
