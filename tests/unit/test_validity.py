"""Each rule at its border, on a point of which nothing else can be said."""

import pytest

from crossover import validity
from crossover.records import POINTS

GOOD = {
    **dict.fromkeys(column.name for column in POINTS),
    "concurrency": 10,
    "window_s": 60.0,
    "output_throughput_tokens_per_s": 100.0,
    "warmup_completed": 20,
    "window_completed": 40,
    "halves_difference_se": 1.0,
    "achieved_concurrency": 10.0,
    "error_share": 0.0,
    "completed": 60,
    "failed": 0,
    "cancelled": 10,
    "requests": 70,
    "distinct_prompts": 70,
    "output_tokens_mean": 100.0,
    "output_tokens_min": 100,
    "output_tokens_max": 100,
    "fixed_output_tokens": 100,
    "looped_share_mean": 0.0,
    "estimated_tokens_share": 0.0,
    "engine_output_tokens": 6500.0,
    "events": 6500,
    "merged_events": 0,
    "running_requests_mean": 10.0,
    "running_requests_p50": 10.0,
    "queued_requests_mean": 0.0,
    "queued_requests_p50": 0.0,
    "received_share": 1.0,
    "front_end_cpu_share_max": 0.3,
    "client_cpu_share": 0.1,
    "send_slip_share": 0.001,
    "client_stalled_share": 0.0,
    "cached_tokens_share": 0.0,
    "cache_reset": True,
    "stamp_source": "kernel",
    "clock_drift_us": 3.0,
}

UNKNOWN = (
    "error_share",
    "halves_difference_se",
    "achieved_concurrency",
    "received_share",
    "front_end_cpu_share_max",
    "client_cpu_share",
    "send_slip_share",
    "client_stalled_share",
    "cached_tokens_share",
    "cache_reset",
    "estimated_tokens_share",
    "looped_share_mean",
    "engine_output_tokens",
    "fixed_output_tokens",
)


def judged(**changed):
    return validity.judge({**GOOD, **changed})


def test_nothing_is_said_of_a_good_point():
    assert judged() == {"valid": True, "invalid_reasons": [], "warnings": []}


def test_what_is_not_known_breaks_no_rule():
    assert judged(**dict.fromkeys(UNKNOWN)) == {
        "valid": True,
        "invalid_reasons": [],
        "warnings": ["stationarity_unknown"],
    }


@pytest.mark.parametrize(
    ("reason", "within", "beyond"),
    [
        ("errors", {"error_share": 0.01}, {"error_share": 0.011}),
        ("too_short", {"warmup_completed": 10}, {"warmup_completed": 9}),
        ("too_short", {"window_completed": 20}, {"window_completed": 19}),
        ("not_stationary", {"halves_difference_se": 3.0}, {"halves_difference_se": 3.1}),
        ("concurrency_not_held", {"achieved_concurrency": 9.5}, {"achieved_concurrency": 9.4}),
        ("queue_limited", {"queued_requests_p50": 0.9}, {"queued_requests_p50": 1.0}),
        (
            "queue_limited",
            {"queued_requests_p50": None, "running_requests_p50": 8.0},
            {"queued_requests_p50": None, "running_requests_p50": 7.9},
        ),
        ("front_end_limited", {"received_share": 0.88}, {"received_share": 0.87}),
        ("front_end_limited", {"running_requests_p50": 8.0}, {"running_requests_p50": 7.9}),
        ("client_limited", {"client_cpu_share": 0.9}, {"client_cpu_share": 0.91}),
        ("client_limited", {"send_slip_share": 0.02}, {"send_slip_share": 0.021}),
        ("client_limited", {"client_stalled_share": 0.05}, {"client_stalled_share": 0.051}),
    ],
)
def test_reasons(reason, within, beyond):
    assert judged(**within)["invalid_reasons"] == []
    assert judged(**beyond)["invalid_reasons"] == [reason]
    assert judged(**beyond)["valid"] is False


def test_no_tokens_at_all():
    assert judged(output_throughput_tokens_per_s=0.0)["invalid_reasons"] == ["no_tokens"]


@pytest.mark.parametrize(
    ("warning", "within", "beyond"),
    [
        ("tokens_estimated", {"estimated_tokens_share": 0.2}, {"estimated_tokens_share": 0.21}),
        # 60 whole answers of 100 tokens, and at most as much of the 10 that were cancelled
        ("token_counts_differ", {"engine_output_tokens": 5880.0}, {"engine_output_tokens": 5879.0}),
        ("token_counts_differ", {"engine_output_tokens": 7140.0}, {"engine_output_tokens": 7141.0}),
        ("events_merged", {"merged_events": 325}, {"merged_events": 326}),
        (
            "lengths_vary",
            {"fixed_output_tokens": None, "output_tokens_min": 9},
            {"output_tokens_min": 99},
        ),
        ("answers_looped", {"looped_share_mean": 0.2}, {"looped_share_mean": 0.21}),
        (
            "queue_unknown",
            {"queued_requests_mean": None},
            {"queued_requests_mean": None, "running_requests_mean": None},
        ),
        ("front_end_busy", {"front_end_cpu_share_max": 0.95}, {"front_end_cpu_share_max": 0.96}),
        ("cache_not_reset", {"cache_reset": None}, {"cache_reset": False}),
        ("prompts_cached", {"cached_tokens_share": 0.5}, {"cached_tokens_share": 0.51}),
        ("prompts_repeated", {"requests": 280}, {"requests": 281}),
        ("user_stamps", {}, {"stamp_source": "user"}),
        ("clock_set", {"clock_drift_us": -1000.0}, {"clock_drift_us": -1001.0}),
    ],
)
def test_warnings(warning, within, beyond):
    assert judged(**within)["warnings"] == []
    assert judged(**beyond) == {"valid": True, "invalid_reasons": [], "warnings": [warning]}


def test_a_step_that_accepts_several_tokens_merges_no_events():
    assert judged(merged_events=3000, drafted_tokens=500.0)["warnings"] == []


def test_a_busy_front_end_lags_sooner():
    busy = judged(received_share=0.94, front_end_cpu_share_max=0.99)
    assert busy["invalid_reasons"] == ["front_end_limited"]
    assert judged(received_share=0.94)["invalid_reasons"] == []


def test_every_rule_says_when_it_holds():
    for name, rule in {**validity.INVALID, **validity.WARNINGS}.items():
        assert name.islower()
        assert rule.__doc__


RATED = {
    **GOOD,
    "concurrency": None,
    "request_rate": 5.0,
    "in_flight_limit_reached": False,
    "backlog_growth": 0.5,
    "send_slip_s_p50": 0.001,
    "ttft_s_p50": 0.1,
}


@pytest.mark.parametrize(
    ("reason", "within", "beyond"),
    [
        ("too_short", {"warmup_completed": 10}, {"warmup_completed": 9}),
        ("too_short", {"achieved_concurrency": 20.0}, {"achieved_concurrency": 20.1}),
        (
            "too_short",
            {"achieved_concurrency": 0.1, "window_completed": 20},
            {"achieved_concurrency": 0.1, "window_completed": 19},
        ),
        ("overloaded", {"backlog_growth": 3.0}, {"backlog_growth": 3.1}),
        ("overloaded", {}, {"in_flight_limit_reached": True}),
        ("client_limited", {"send_slip_s_p50": 0.005}, {"send_slip_s_p50": 0.0051}),
        ("client_limited", {"send_slip_share": 0.02}, {"send_slip_share": 0.021}),
        ("front_end_limited", {"received_share": 0.88}, {"received_share": 0.87}),
    ],
)
def test_reasons_at_a_request_rate(reason, within, beyond):
    assert validity.judge({**RATED, **within})["invalid_reasons"] == []
    assert validity.judge({**RATED, **beyond})["invalid_reasons"] == [reason]


@pytest.mark.parametrize(
    "changed",
    [
        {"achieved_concurrency": 2.0},
        {"queued_requests_p50": 9.0},
        {"running_requests_p50": 0.0},
        {"halves_difference_se": 9.0},
    ],
)
def test_what_only_a_held_concurrency_rules_out(changed):
    assert validity.judge({**RATED, **changed})["valid"]
