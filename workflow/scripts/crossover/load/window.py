"""From token arrivals to the steady window: truncation, stationarity, noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossover.load.decode import Answer

_BATCHES = 20
_MSER_BATCH = 5
_MSER_MIN_BINS = 40
_BIN_S = 1.0
_HALF_BATCHES = 10


class Tokens(NamedTuple):
    """Tokens of a whole run by arrival, in order of time.

    at_ns: arrival, CLOCK_MONOTONIC ns.
    count: tokens that arrived then.
    estimated: they belong to a cancelled request, whose usage never came.
    source: "events" where every event's tokens are known, "bytes" where usage was spread.
    """

    at_ns: np.ndarray
    count: np.ndarray
    estimated: np.ndarray
    source: str

    def inside(self, start_ns: int, end_ns: int) -> np.ndarray:
        """Mask of what arrived in [start, end)."""
        return (self.at_ns >= start_ns) & (self.at_ns < end_ns)


def tokens_of(answers: Sequence[Answer]) -> Tokens:
    """All tokens of a run. Failed requests deliver none.

    A cancelled request without running usage counts one token an event if every good answer of
    the run has one token an event, else its content bytes at the run's own tokens per byte.
    """
    good = [a for a in answers if a.status == "ok"]
    single = all(a.one_token_an_event for a in good)
    size = sum(sum(a.sizes) for a in good)
    per_byte = sum(a.output_tokens for a in good) / size if size else 0.0
    at_ns: list[int] = []
    count: list[float] = []
    estimated: list[bool] = []
    for answer in answers:
        if answer.status == "failed" or (answer.status == "cancelled" and not good):
            continue
        known = answer.status == "ok" or answer.counts is not None
        if answer.status == "ok":
            tokens = answer.event_tokens()
        elif known:
            tokens = answer.counts
        elif single:
            tokens = [1.0] * len(answer.sizes)
        else:
            tokens = [n * per_byte for n in answer.sizes]
        at_ns += answer.stamps_ns
        count += tokens
        estimated += [not (known or single)] * len(tokens)
    order = np.argsort(np.asarray(at_ns, np.int64), kind="stable")
    return Tokens(
        np.asarray(at_ns, np.int64)[order],
        np.asarray(count, float)[order],
        np.asarray(estimated, bool)[order],
        "events" if all(a.has_event_counts for a in good) else "bytes",
    )


def bins(tokens: Tokens, start_ns: int, end_ns: int) -> np.ndarray:
    """Tokens in equal bins of [start, end): one a second, at least 20.

    Empty where fewer than 20 arrivals could fill them.
    """
    mask = tokens.inside(start_ns, end_ns)
    if mask.sum() < _BATCHES:
        return np.zeros(0)
    number = max(_BATCHES, int((end_ns - start_ns) / (_BIN_S * 1e9)))
    counts, _ = np.histogram(
        tokens.at_ns[mask] - start_ns,
        bins=number,
        range=(0, end_ns - start_ns),
        weights=tokens.count[mask],
    )
    return counts


def mser5(counts: np.ndarray) -> int:
    """Bins to drop from the front: MSER-5 (White 1997), searched in the first half.

    0 for fewer than 40 bins.
    """
    if len(counts) < _MSER_MIN_BINS:
        return 0
    number = len(counts) // _MSER_BATCH
    batches = counts[: number * _MSER_BATCH].reshape(number, _MSER_BATCH).mean(axis=1)

    def squared_error(dropped: int) -> float:
        kept = batches[dropped:]
        return float(((kept - kept.mean()) ** 2).sum() / len(kept) ** 2)

    return min(range(number // 2 + 1), key=squared_error) * _MSER_BATCH


def halves_difference_se(counts: np.ndarray) -> float | None:
    """Difference of the means of the two halves in batch-means standard errors.

    At most a million, where a half does not vary at all; None: fewer than 20 bins.
    """
    if len(counts) < _BATCHES:
        return None
    half = len(counts) // 2
    halves = counts[:half], counts[-half:]
    variance = 0.0
    for part in halves:
        batches = _batch_means(part, _HALF_BATCHES)
        variance += batches.var(ddof=1) / len(batches)
    difference = abs(float(halves[0].mean() - halves[1].mean()))
    return min(difference / max(math.sqrt(variance), 1e-12), 1e6)


def cv_within(counts: np.ndarray) -> float | None:
    """Coefficient of variation of the window's mean: 20 batch means, lag-1 corrected.

    None: there are fewer than 20 bins, or no tokens.
    """
    if len(counts) < _BATCHES or not counts.any():
        return None
    batches = _batch_means(counts, _BATCHES)
    deviations = batches - batches.mean()
    squares = float((deviations**2).sum())
    if squares == 0:
        return 0.0
    lag1 = max(float((deviations[1:] * deviations[:-1]).sum()) / squares, 0.0)
    inflation = (1 + lag1) / (1 - min(lag1, 0.8))
    variance = squares / (_BATCHES - 1) * inflation / _BATCHES
    return math.sqrt(variance) / float(counts.mean())


def _batch_means(counts: np.ndarray, number: int) -> np.ndarray:
    """Means of `number` equal batches; what does not fill one is left out at the front."""
    length = len(counts) // number
    return counts[len(counts) - number * length :].reshape(number, length).mean(axis=1)


def steady_start_ns(tokens: Tokens, start_ns: int, end_ns: int, latest_ns: int) -> int:
    """Where the steady part of [start, end) begins by MSER-5; no later than `latest_ns`."""
    counts = bins(tokens, start_ns, end_ns)
    if not len(counts):
        return start_ns
    width_ns = (end_ns - start_ns) / len(counts)
    truncated_ns = start_ns + int(mser5(counts) * width_ns)
    return truncated_ns if truncated_ns <= latest_ns else start_ns
