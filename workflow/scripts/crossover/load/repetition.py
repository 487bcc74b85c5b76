"""How much of an answer is a loop: a model that repeats itself is easy to draft for."""

from __future__ import annotations

from bisect import bisect_left

_NEEDLE_BYTES = 24
_PERIODS = 4


def looped_share(text: bytes) -> float:
    """Share of `text` that is its end repeating itself: the longest end with one period.

    0 where that end holds fewer than four periods.
    """
    size = len(text)
    earlier = text.rfind(text[-_NEEDLE_BYTES:], 0, size - 1)
    if earlier < 0:
        return 0.0
    period = size - len(text[-_NEEDLE_BYTES:]) - earlier

    def breaks(length: int) -> bool:
        return text[size - length + period :] != text[size - length : size - period]

    looped = bisect_left(range(size + 1), True, lo=period, key=breaks) - 1
    return looped / size if looped >= _PERIODS * period else 0.0
