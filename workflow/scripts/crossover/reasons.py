"""What the reasons of points and verdicts mean, in words."""

from __future__ import annotations

import re

CODES = {
    # of points: measure.INVALID and measure.WARNINGS
    "errors": "more than 1 % of the requests failed",
    "no_tokens": "no tokens arrived in the window",
    "too_short": "too few answers before or in the window",
    "not_stationary": "the throughput drifted over the window",
    "concurrency_not_held": "fewer requests were in flight than the level says",
    "queue_limited": "requests waited in the server: fewer ran than the level says",
    "client_limited": "the load client was at its limit",
    "stationarity_unknown": "too few arrivals to tell whether the throughput was steady",
    "tokens_estimated": "many tokens are estimated: their requests were cancelled without usage",
    "events_merged": "many tokens arrived in one read and share a time stamp",
    "lengths_vary": "answers were to have a fixed length and have not: the server ignores ignore_eos",
    "queue_unknown": "the server does not tell how many requests run or wait",
    "cache_not_reset": "the server did not confirm that its prefix cache was emptied",
    "prompts_cached": "most prompt tokens came from a cache although all prompts are unique",
    "user_stamps": "arrival times are the client's, not the kernel's",
    "clock_set": "the host's clock was set during the point",
    # of verdicts
    "crossing_within_margin": "the sign changes, but within the margin",
    "fewer_than_2_common_levels": "fewer than two levels in common",
    "levels_unresolved": "some levels are not resolved",
    "no_significant_level": "no level shows a difference beyond the noise",
    "operational_law_violated": "throughput changes more than concurrency explains",
    "single_repeat": "one trial only",
}
"""What reasons mean; an unknown one is printed as it is, without its underscores."""


def words(code: str) -> str:
    """A reason in words: known codes are explained, `code: detail` keeps its detail."""
    head, colon, detail = code.partition(":")
    if not re.fullmatch(r"[a-z0-9_]+", head):
        return code
    return CODES.get(head, head.replace("_", " ")) + colon + detail
