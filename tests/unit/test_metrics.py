import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossover import metrics


def test_request_figures():
    assert metrics.ttft_s(1.0, 1.5) == 0.5
    assert metrics.ttft_s(1.0, None) is None
    assert metrics.e2e_s(1.0, 4.0) == 3.0
    assert metrics.itl_s([10**9, 3 * 10**9, 4 * 10**9]) == [2.0, 1.0]
    assert metrics.itl_s([5]) == []


def test_tpot_leaves_the_first_chunk_out():
    assert metrics.tpot_s(1.0, 3.0, 24, 4) == pytest.approx(0.1)


def test_tpot_needs_sixteen_tokens_after_the_first_chunk():
    assert metrics.tpot_s(1.0, 3.0, 20, 4) == pytest.approx(2 / 16)
    assert metrics.tpot_s(1.0, 3.0, 19, 4) is None
    assert metrics.tpot_s(None, None, 50, None) is None


def test_percentiles_interpolate():
    values = [4.0, 1.0, 3.0, 2.0]
    assert metrics.percentile(values, 50) == 2.5
    assert metrics.percentile(values, 0) == 1.0
    assert metrics.percentile(values, 100) == 4.0
    assert metrics.percentile([], 50) is None
    assert metrics.summary("x", values)["x_p90"] == pytest.approx(3.7)
    assert metrics.summary("x", []) == {"x_mean": None, "x_p50": None, "x_p90": None, "x_p99": None}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100))
def test_percentile_lies_within(values, p):
    assert min(values) - 1e-6 <= metrics.percentile(values, p) <= max(values) + 1e-6


def test_decode_rate_is_the_median_of_rates():
    assert metrics.decode_rate_tokens_per_s([0.1, 0.2, 0.5]) == pytest.approx(5)
    assert metrics.decode_rate_tokens_per_s([]) is None


def test_achieved_concurrency_counts_overlap_only():
    spans = [(-5, 5), (5, 20), (0, 10), (11, 12)]
    assert metrics.achieved_concurrency(spans, 0, 10) == pytest.approx(2.0)
    assert metrics.achieved_concurrency(spans, 3, 3) is None


def test_acceptance():
    assert metrics.acceptance_length(60, 30) == 3.0
    assert metrics.acceptance_rate(60, 90) == pytest.approx(2 / 3)
    assert metrics.tokens_per_step(100, 60) == 2.5
    assert metrics.share_per_position((30, 15), 60) == [0.5, 0.25]


def test_unknown_is_none_never_zero():
    assert metrics.acceptance_length(None, 30) is None
    assert metrics.acceptance_length(0, 0) is None
    assert metrics.acceptance_rate(0, 90) == 0
    assert metrics.tokens_per_step(None, 3) is None
    assert metrics.tokens_per_step(3, 3) is None
    assert metrics.share_per_position(None, 5) is None
    assert metrics.error_share(0, 0) is None
    assert metrics.error_share(1, 3) == 0.25
    assert metrics.rate(None, 3.0, 1.0) is None
    assert metrics.rate(1.0, 3.0, 4.0) == 0.5
