"""How a comparison's outcome changed from one campaign to another: ratios of ratios.

A speed-up is a ratio within its own campaign, so that what a machine or a day has in common for
both arms cancels. The campaigns are independent: their bounds are combined on the logarithm by
the method of variance estimates recovery (Zou & Donner 2008, Statistics in Medicine 27:1693).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossover.report.wording import Row


@dataclass(frozen=True)
class Change:
    """A later value over an earlier one; without bounds where one of the two has none."""

    ratio: float
    lo: float | None
    hi: float | None

    @property
    def label(self) -> str | None:
        """+ it rose, - it fell, ? either; None: nothing is known of the noise."""
        if self.lo is None or self.hi is None:
            return None
        return "+" if self.lo > 1 else "-" if self.hi < 1 else "?"


def change(earlier: Sequence[float | None], later: Sequence[float | None]) -> Change | None:
    """The change between two (estimate, lower bound, upper bound); None: one has no estimate."""
    if not earlier[0] or not later[0]:
        return None
    ratio = later[0] / earlier[0]
    if not all((*earlier, *later)):
        return Change(ratio, None, None)
    (was, was_lo, was_hi), (is_, is_lo, is_hi) = (map(math.log, v) for v in (earlier, later))
    down = math.hypot(is_ - is_lo, was_hi - was)
    up = math.hypot(is_hi - is_, was - was_lo)
    return Change(ratio, ratio * math.exp(-down), ratio * math.exp(up))


def of_levels(earlier: Row, later: Row, *, bounded: bool) -> dict[float, Change]:
    """Of the speed-up at every level that both verdicts have, in the levels' order.

    Args:
        earlier, later: verdicts of the same comparison.
        bounded: their bounds hold with the same certainty, and can be combined.
    """
    axis = earlier["axis"]
    if later["axis"] != axis:
        return {}
    before, after = (
        {n[axis]: (n["ratio"], *((n["lo"], n["hi"]) if bounded else (None, None))) for n in levels}
        for levels in (earlier["levels"], later["levels"])
    )
    found = {level: change(before[level], after[level]) for level in before if level in after}
    return {level: one for level, one in sorted(found.items()) if one is not None}


def of_crossing(earlier: Row, later: Row, *, bounded: bool) -> Change | None:
    """Of C*, where both verdicts have one crossing, and in the same direction; as `of_levels`."""
    pair = [*earlier["crossings"], *later["crossings"]]
    if len(earlier["crossings"]) != 1 or len(pair) != 2 or earlier["axis"] != later["axis"]:
        return None
    if len({c["direction"] for c in pair}) == 2:
        return None
    before, after = ((c["c_star"], *(c["ci"] if bounded else (None, None))) for c in pair)
    return change(before, after)
