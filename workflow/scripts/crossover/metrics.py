"""The figures of a request and of a point: one formula each. None: cannot be computed."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MIN_DECODED_TOKENS = 16
"""Tokens after the first chunk below which TPOT is not computed."""


def start_s(scheduled_s: float | None, sent_s: float) -> float:
    """From when a request's latencies run: when it was scheduled, else just before sending.

    A client that is held up, be it by the server, sends late; who waited for the answer does not
    care why (coordinated omission).
    """
    return sent_s if scheduled_s is None else scheduled_s


def ttft_s(start_s: float, first_token_s: float | None) -> float | None:
    """Time to first token: first content - start, seconds."""
    return None if first_token_s is None else first_token_s - start_s


def tpot_s(
    first_token_s: float | None,
    last_token_s: float | None,
    output_tokens: int | None,
    first_chunk_tokens: int | None,
) -> float | None:
    """Time per output token: (last - first token) / (output tokens - tokens of the first chunk).

    Seconds; vLLM divides by output tokens - 1. None below 16 tokens after the first
    chunk.
    """
    if None in (first_token_s, last_token_s, output_tokens, first_chunk_tokens):
        return None
    decoded = output_tokens - first_chunk_tokens
    if decoded < MIN_DECODED_TOKENS:
        return None
    return (last_token_s - first_token_s) / decoded


def itl_s(stamps_ns: Sequence[int]) -> list[float]:
    """Inter-chunk latency: gaps between consecutive events with content, seconds.

    Not comparable between variants whose chunks hold different numbers of tokens.
    """
    return [(b - a) / 1e9 for a, b in itertools.pairwise(stamps_ns)]


def e2e_s(start_s: float, end_s: float) -> float:
    """Start to the end of the answer, seconds."""
    return end_s - start_s


def decode_rate_tokens_per_s(tpots_s: Iterable[float]) -> float | None:
    """Median over requests of 1 / TPOT."""
    return percentile([1 / t for t in tpots_s if t > 0], 50)


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean."""
    return math.fsum(values) / len(values) if values else None


def percentile(values: Sequence[float], p: float) -> float | None:
    """Percentile with linear interpolation between order statistics (type 7)."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * p / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """`name`_mean, _p50, _p90 and _p99."""
    values = sorted(values)
    return {
        f"{name}_mean": mean(values),
        **{f"{name}_p{p}": percentile(values, p) for p in (50, 90, 99)},
    }


def achieved_concurrency(
    spans_s: Iterable[tuple[float, float]], start_s: float, end_s: float
) -> float | None:
    """Mean requests in flight in [start, end): overlap of all (start, end) spans / its length."""
    if end_s <= start_s:
        return None
    overlap = math.fsum(max(0.0, min(e, end_s) - max(s, start_s)) for s, e in spans_s)
    return overlap / (end_s - start_s)


def error_share(failed: int, completed: int) -> float | None:
    """Failed / (completed + failed) requests."""
    return ratio(failed, completed + failed)


def acceptance_length(accepted: float | None, verify_steps: float | None) -> float | None:
    """1 + accepted / verify steps: tokens of a draft verification, bonus token included."""
    share = ratio(accepted, verify_steps)
    return None if share is None else 1 + share


def acceptance_rate(accepted: float | None, drafted: float | None) -> float | None:
    """Accepted / drafted tokens."""
    return ratio(accepted, drafted)


def tokens_per_step(generated: float | None, accepted: float | None) -> float | None:
    """Generated / (generated - accepted): tokens of one step of a sequence."""
    if generated is None or accepted is None:
        return None
    return ratio(generated, generated - accepted)


def share_per_position(
    accepted: Sequence[float] | None, verify_steps: float | None
) -> list[float] | None:
    """Accepted at each draft position / verify steps."""
    if accepted is None or not verify_steps:
        return None
    return [n / verify_steps for n in accepted]


def rate(earlier: float | None, later: float | None, seconds: float) -> float | None:
    """Growth of a cumulative count per second."""
    if earlier is None or later is None:
        return None
    return ratio(later - earlier, seconds)


def ratio(part: float | None, whole: float | None) -> float | None:
    """Part / whole; None where one is not known, or the whole is not above 0."""
    if part is None or whole is None or whole <= 0:
        return None
    return part / whole
