"""What a point's own figures say about it: may it carry a verdict, and what must be known of it.

Every rule reads columns of `records.POINTS` alone, so that it can be checked from points.parquet.
A figure that is None breaks no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crossover.load.arrivals import LEAST_SCHEDULED_COMPLETED

Point = Mapping[str, Any]

MOST_BACKLOG_GROWTH = 3.0
"""Standard deviations of a stationary number in flight; see benchmarks/overload_rule.py."""


def judge(point: Point) -> dict[str, Any]:
    """The columns `valid`, `invalid_reasons` and `warnings` of a point that has all others."""
    reasons = [name for name, holds in INVALID.items() if holds(point)]
    warnings = [name for name, holds in WARNINGS.items() if holds(point)]
    return {"valid": not reasons, "invalid_reasons": reasons, "warnings": warnings}


def _over(value: float | None, limit: float) -> bool:
    return value is not None and value > limit


def _under(value: float | None, limit: float) -> bool:
    return value is not None and value < limit


# ---------------------------------------------------------------------- may it carry a verdict


def _errors(point: Point) -> bool:
    """More than 1 % of the requests failed."""
    return _over(point["error_share"], 0.01)


def _no_tokens(point: Point) -> bool:
    """Nothing arrived in the window."""
    return not point["output_throughput_tokens_per_s"]


def _too_short(point: Point) -> bool:
    """Fewer than C completions of warm-up, or than 2C in the window.

    In an open loop C is the mean number in flight, and 20 completions in the window are the least.
    """
    if point["window_s"] is None:
        return True
    clients, least = point["concurrency"], 0
    if clients is None:
        clients, least = point["achieved_concurrency"], LEAST_SCHEDULED_COMPLETED
    return point["warmup_completed"] < clients or point["window_completed"] < max(
        2 * clients, least
    )


def _not_stationary(point: Point) -> bool:
    """The window's halves differ by more than 3 standard errors.

    Closed loop: what arrives on a schedule comes in bursts, by which good windows differ so too;
    there `_overloaded` tells a server that lags.
    """
    return point["concurrency"] is not None and _over(point["halves_difference_se"], 3)


def _overloaded(point: Point) -> bool:
    """Open loop: the server does not keep up with the arrivals.

    Requests in flight grew by more than MOST_BACKLOG_GROWTH, or reached the limit. At little above
    the capacity that takes minutes to see.
    """
    return bool(point["in_flight_limit_reached"]) or _over(
        point["backlog_growth"], MOST_BACKLOG_GROWTH
    )


def _concurrency_not_held(point: Point) -> bool:
    """Fewer than 95 % of the level were in flight."""
    return point["concurrency"] is not None and _under(
        point["achieved_concurrency"], 0.95 * point["concurrency"]
    )


def _not_running(point: Point) -> float:
    """Usual number of requests in flight that the engine does not run, from a fifth of the level.

    Between two steps of a batch a request that has just come may not be seen yet, which is no
    limit: below that, where the server does not tell, and in an open loop, where the number in
    flight is not held and a few samples do not tell it, it is 0.
    """
    running = point["running_requests_p50"]
    if running is None or point["concurrency"] is None:
        return 0.0
    missing = point["concurrency"] - running
    return missing if missing > max(1.0, 0.2 * point["concurrency"]) else 0.0


def _queue_limited(point: Point) -> bool:
    """Usually a tenth of the level waited, and one request at least; or those that the engine
    did not run were for the better part waiting in its queue. Closed loop: at a given request rate
    a queue is what a user would meet.
    """
    if point["concurrency"] is None:
        return False
    queued, missing = point["queued_requests_p50"], _not_running(point)
    if queued is None:
        return missing > 0
    return queued >= max(1.0, 0.1 * point["concurrency"]) or (
        missing > 0 and queued >= 0.5 * missing
    )


def _front_end_limited(point: Point) -> bool:
    """The processes in front of the engine are the limit, not the engine.

    Fewer than 88 % of the tokens that it decoded had arrived, or fewer than 95 % while one of
    those processes used a whole core; or requests in flight neither ran in it nor waited for it:
    usually, or on average while one of those processes was nearly always at work.
    On an H200 this turned a ratio of 1.03 into 1.75; a busy process alone says nothing, arms that
    kept up had one at 0.99 of a core (tests/data/gpu).
    """
    share = point["received_share"]
    if _under(share, 0.95 if _front_end_busy(point) else 0.88):
        return True
    queued, missing = point["queued_requests_p50"], _not_running(point)
    if queued is not None and missing > 0 and queued < 0.5 * missing:
        return True
    return _over(_between_client_and_engine(point), 0.08) and _over(
        point["front_end_cpu_share_max"], 0.8
    )


def _between_client_and_engine(point: Point) -> float | None:
    """Mean share of the level that the engine neither runs nor holds in its queue.

    At 250 requests on an H200 it was 1 to 5 % where the front end kept up, 9 and 13 % where one
    vLLM API server lost 4 % of the throughput (docs/studies/h200-vllm), and 39 % behind SGLang's
    tokenizer workers (docs/studies/h200-sglang). None in an open loop or where the server does not tell.
    """
    running, queued = point["running_requests_mean"], point["queued_requests_mean"]
    if None in (running, queued, point["concurrency"]):
        return None
    return 1 - (running + queued) / point["concurrency"]


def _client_limited(point: Point) -> bool:
    """The load client held the load back: it used more than 90 % of a core, its clients were idle
    for more than 2 % of the window because it sent their next request late, or it did not run for
    more than 5 % of the window. Open loop: or sending late is more than 5 % of the median TTFT.
    """
    return (
        _over(point["client_cpu_share"], 0.9)
        or _over(point["send_slip_share"], 0.02)
        or _over(point["client_stalled_share"], 0.05)
        or (point["concurrency"] is None and _slips_into_ttft(point))
    )


def _slips_into_ttft(point: Point) -> bool:
    slip_s, ttft_s = point["send_slip_s_p50"], point["ttft_s_p50"]
    return ttft_s is not None and _over(slip_s, 0.05 * ttft_s)


INVALID: Mapping[str, Callable[[Point], bool]] = {
    "errors": _errors,
    "no_tokens": _no_tokens,
    "too_short": _too_short,
    "not_stationary": _not_stationary,
    "overloaded": _overloaded,
    "concurrency_not_held": _concurrency_not_held,
    "queue_limited": _queue_limited,
    "front_end_limited": _front_end_limited,
    "client_limited": _client_limited,
}
"""Why a point may not carry a verdict."""


# ---------------------------------------------------------------------- what must be known of it


def _stationarity_unknown(point: Point) -> bool:
    """There are too few arrivals to tell."""
    return point["halves_difference_se"] is None


def _tokens_estimated(point: Point) -> bool:
    """More than 20 % of the window's tokens are those of cancelled requests without usage."""
    return _over(point["estimated_tokens_share"], 0.2)


def _token_counts_differ(point: Point) -> bool:
    """The engine counted 2 % fewer tokens than its whole answers had, or 2 % more than can be.

    Requests that failed or were cancelled may be in its count with no token, or with as many as
    a whole answer had.
    """
    counted, mean = point["engine_output_tokens"], point["output_tokens_mean"]
    if counted is None or mean is None:
        return False
    whole = point["completed"] * mean
    cut_off = (point["failed"] + point["cancelled"]) * mean
    return not 0.98 * whole <= counted <= 1.02 * (whole + cut_off)


def _events_merged(point: Point) -> bool:
    """More than 5 % of the events share a stamp, and not because a step accepts several tokens."""
    return not point["drafted_tokens"] and point["merged_events"] > 0.05 * point["events"]


def _lengths_vary(point: Point) -> bool:
    """Answers were to have max_tokens and have not: cancelling those in flight favours short ones."""
    fixed = point["fixed_output_tokens"]
    lengths = {point["output_tokens_min"], point["output_tokens_max"]} - {None}
    return fixed is not None and bool(lengths - {fixed})


def _answers_looped(point: Point) -> bool:
    """More than a fifth of the text is the end of an answer that repeats itself."""
    return _over(point["looped_share_mean"], 0.2)


def _queue_unknown(point: Point) -> bool:
    """The server tells neither queue nor running requests: a cap would go unseen."""
    return point["queued_requests_mean"] is None and point["running_requests_mean"] is None


def _front_end_busy(point: Point) -> bool:
    """A process in front of the engine used more than 95 % of a core."""
    return _over(point["front_end_cpu_share_max"], 0.95)


def _cache_not_reset(point: Point) -> bool:
    """The server has a route for it and did not confirm."""
    return point["cache_reset"] is False


def _prompts_cached(point: Point) -> bool:
    """More than half of the prompt tokens came from a cache although all prompts are unique."""
    return _over(point["cached_tokens_share"], 0.5)


def _prompts_repeated(point: Point) -> bool:
    """The prompt set was gone through more than four times."""
    return point["requests"] > 4 * point["distinct_prompts"]


def _user_stamps(point: Point) -> bool:
    """Arrival times are those of this process, not the kernel's."""
    return point["stamp_source"] == "user"


def _clock_set(point: Point) -> bool:
    """The wall clock moved by more than 1 ms; kernel stamps near that moment are off by it."""
    return abs(point["clock_drift_us"]) > 1000


WARNINGS: Mapping[str, Callable[[Point], bool]] = {
    "stationarity_unknown": _stationarity_unknown,
    "tokens_estimated": _tokens_estimated,
    "token_counts_differ": _token_counts_differ,
    "events_merged": _events_merged,
    "lengths_vary": _lengths_vary,
    "answers_looped": _answers_looped,
    "queue_unknown": _queue_unknown,
    "front_end_busy": _front_end_busy,
    "cache_not_reset": _cache_not_reset,
    "prompts_cached": _prompts_cached,
    "prompts_repeated": _prompts_repeated,
    "user_stamps": _user_stamps,
    "clock_set": _clock_set,
}
"""What a reader should know although the point may be valid."""
