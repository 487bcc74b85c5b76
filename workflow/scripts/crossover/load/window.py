"""From token arrivals to the steady window: truncation, stationarity, noise."""

from __future__ import annotations

import math
from array import array
from itertools import compress, pairwise
from statistics import fmean, variance
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossover.load.decode import Answer

_BATCHES = 20
_MSER_BATCH = 5
_MSER_MIN_BINS = 40
_BIN_S = 1.0
_HALF_BATCHES = 10


class Tokens(NamedTuple):
    """Tokens by arrival, request after request.

    at_ns: arrival, CLOCK_MONOTONIC ns.
    count: tokens that arrived then.
    estimated: they belong to a cancelled request, whose usage never came.
    source: "events" where every event's tokens are known, "bytes" where usage was spread.
    """

    at_ns: Sequence[int]
    count: Sequence[float]
    estimated: Sequence[bool]
    source: str

    def inside(self, start_ns: int, end_ns: int) -> Tokens:
        """What arrived in [start, end)."""
        mask = [start_ns <= at_ns < end_ns for at_ns in self.at_ns]
        at_ns, count, estimated = (
            array(column.typecode, compress(column, mask))
            for column in (self.at_ns, self.count, self.estimated)
        )
        return Tokens(at_ns, count, estimated, self.source)


def tokens_of(answers: Sequence[Answer]) -> Tokens:
    """All tokens of a run. Failed requests deliver none.

    A cancelled request without running usage counts one token an event if every good answer of
    the run has one token an event, else its content bytes at the run's own tokens per byte.
    """
    good = [a for a in answers if a.status == "ok"]
    single = all(a.one_token_an_event for a in good)
    size = sum(sum(a.sizes) for a in good)
    per_byte = sum(a.output_tokens for a in good) / size if size else 0.0
    at_ns, count, estimated = array("q"), array("d"), array("b")
    for answer in answers:
        if answer.status == "failed" or (answer.status == "cancelled" and not good):
            continue
        known = answer.status == "ok" or answer.counts is not None
        if answer.status == "ok":
            tokens = answer.event_tokens()
        elif known:
            tokens = list(answer.counts)
        elif single:
            tokens = [1.0] * len(answer.sizes)
        else:
            tokens = [n * per_byte for n in answer.sizes]
        at_ns.extend(answer.stamps_ns)
        count.extend(tokens)
        estimated.extend([not (known or single)] * len(tokens))
    source = "events" if all(a.has_event_counts for a in good) else "bytes"
    return Tokens(at_ns, count, estimated, source)


def bins(tokens: Tokens, start_ns: int, end_ns: int) -> list[float]:
    """Tokens in equal bins of [start, end): one a second, at least 20.

    Empty where fewer than 20 arrivals could fill them.
    """
    length_ns = end_ns - start_ns
    number = max(_BATCHES, int(length_ns / (_BIN_S * 1e9)))
    counts = [0.0] * number
    arrivals = 0
    for at_ns, count in zip(tokens.at_ns, tokens.count, strict=True):
        if start_ns <= at_ns < end_ns:
            counts[(at_ns - start_ns) * number // length_ns] += count
            arrivals += 1
    return counts if arrivals >= _BATCHES else []


def mser5(counts: Sequence[float]) -> int:
    """Bins to drop from the front: MSER-5 (White 1997), searched in the first half.

    0 for fewer than 40 bins.
    """
    if len(counts) < _MSER_MIN_BINS:
        return 0
    number = len(counts) // _MSER_BATCH
    batches = [
        fmean(counts[i : i + _MSER_BATCH]) for i in range(0, number * _MSER_BATCH, _MSER_BATCH)
    ]
    squared_error = {}
    mean, squares = 0.0, 0.0  # squares: of the deviations from the mean (Welford)
    for kept, batch in enumerate(reversed(batches), 1):
        deviation = batch - mean
        mean += deviation / kept
        squares += deviation * (batch - mean)
        squared_error[number - kept] = squares / kept**2
    return min(range(number // 2 + 1), key=squared_error.get) * _MSER_BATCH


def halves_difference_se(counts: Sequence[float]) -> float | None:
    """Difference of the means of the two halves in batch-means standard errors.

    At most a million, where a half does not vary at all; None: fewer than 20 bins.
    """
    if len(counts) < _BATCHES:
        return None
    half = len(counts) // 2
    halves = counts[:half], counts[-half:]
    squared_error = sum(variance(_batch_means(h, _HALF_BATCHES)) / _HALF_BATCHES for h in halves)
    first, second = map(fmean, halves)
    return min(abs(first - second) / max(math.sqrt(squared_error), 1e-12), 1e6)


def cv_within(counts: Sequence[float]) -> float | None:
    """Coefficient of variation of the window's mean: 20 batch means, lag-1 corrected.

    None: there are fewer than 20 bins, or no tokens.
    """
    if len(counts) < _BATCHES or not any(counts):
        return None
    batches = _batch_means(counts, _BATCHES)
    mean = fmean(batches)
    deviations = [batch - mean for batch in batches]
    squares = sum(a * a for a in deviations)
    if squares == 0:
        return 0.0
    lag1 = max(sum(a * b for a, b in pairwise(deviations)) / squares, 0.0)
    inflation = (1 + lag1) / (1 - min(lag1, 0.8))
    squared_error = squares / (_BATCHES - 1) * inflation / _BATCHES
    return math.sqrt(squared_error) / fmean(counts)


def _batch_means(counts: Sequence[float], number: int) -> list[float]:
    """Means of `number` equal batches; what does not fill one is left out at the front."""
    length = len(counts) // number
    starts = range(len(counts) - number * length, len(counts), length)
    return [fmean(counts[start : start + length]) for start in starts]


def steady_start_ns(tokens: Tokens, start_ns: int, end_ns: int, latest_ns: int) -> int:
    """Where the steady part of [start, end) begins by MSER-5; no later than `latest_ns`."""
    counts = bins(tokens, start_ns, end_ns)
    if not counts:
        return start_ns
    width_ns = (end_ns - start_ns) / len(counts)
    truncated_ns = start_ns + int(mser5(counts) * width_ns)
    return truncated_ns if truncated_ns <= latest_ns else start_ns
