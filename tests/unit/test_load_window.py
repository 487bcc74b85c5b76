from array import array
from itertools import compress

import numpy as np
import pytest

from crossover.load import window
from crossover.load.decode import Answer
from crossover.load.exchange import Exchange

SECOND = 10**9


def answer(stamps_s, sizes, output_tokens=None, status="ok", counts=None):
    return Answer(
        Exchange(0, 0, 0, stamps=array("q")),
        status=status,
        output_tokens=output_tokens,
        stamps_ns=array("q", [int(s * SECOND) for s in stamps_s]),
        sizes=array("i", sizes),
        counts=None if counts is None else array("i", counts),
        merged=bytearray(len(sizes)),
    )


def tokens(counts, bin_s=1.0):
    """Tokens that fill bins of `bin_s` with `counts`."""
    at = [int((i + 0.5) * bin_s * SECOND) for i in range(len(counts))]
    return window.Tokens(array("q", at), array("d", counts), array("b", [0] * len(at)), "events")


def test_request_over_an_edge_counts_what_arrived_inside():
    found = window.tokens_of([answer([1, 2, 3, 4], [5, 5, 10, 20], output_tokens=8)])
    assert found.source == "bytes"
    assert sum(found.inside(2 * SECOND, 4 * SECOND).count) == pytest.approx(3)
    assert sum(found.count) == pytest.approx(8)


def test_window_is_half_open():
    found = window.tokens_of([answer([1, 2, 3], [1, 1, 1], output_tokens=3)])
    assert found.source == "events"
    assert sum(found.inside(SECOND, 3 * SECOND).count) == 2


def test_failed_requests_deliver_no_tokens():
    good, bad = answer([1], [4], 1), answer([1.5], [9], 1, status="failed")
    assert sum(window.tokens_of([good, bad]).count) == 1


def test_cancelled_requests_are_estimated():
    cut = answer([1, 2], [6, 2], status="cancelled")
    spread = answer([1, 2], [4, 4], output_tokens=4)
    found = window.tokens_of([spread, cut])
    assert sum(compress(found.count, found.estimated)) == pytest.approx(
        4
    )  # 8 bytes at 0.5 tokens a byte
    single = answer([1, 2], [4, 4], output_tokens=2)
    found = window.tokens_of([single, cut])
    assert found.count.tolist() == [1, 1, 1, 1]
    assert not any(found.estimated), "one token an event is known, not estimated"


def test_cancelled_requests_with_running_usage_are_known():
    cut = answer([1, 2], [6, 2], output_tokens=7, status="cancelled", counts=[3, 4])
    good = answer([1, 2], [6, 2], output_tokens=9, counts=[4, 5])
    found = window.tokens_of([good, cut])
    assert not any(found.estimated)
    assert sum(found.count) == 16


def test_nothing_good_means_no_tokens():
    found = window.tokens_of([answer([1], [3], status="cancelled")])
    assert sum(found.count) == 0


@pytest.mark.parametrize(("length_s", "number"), [(5, 20), (20, 20), (60, 60)])
def test_bins_are_seconds_and_at_least_twenty(length_s, number):
    found = window.bins(tokens([1] * length_s * 10, 0.1), 0, length_s * SECOND)
    assert len(found) == number
    assert sum(found) == length_s * 10


def test_too_few_arrivals_give_unknown():
    found = window.bins(tokens([1] * 19), 0, 19 * SECOND)
    assert len(found) == 0
    assert window.halves_difference_se(found) is None
    assert window.cv_within(found) is None


def test_mser_drops_the_ramp():
    rng = np.random.default_rng(1)
    counts = 100 + rng.normal(0, 1, 60)
    counts[:10] -= 50
    assert window.mser5(counts) == 10
    assert window.mser5(counts[:39]) == 0
    start = window.steady_start_ns(tokens(counts), 0, 60 * SECOND, latest_ns=40 * SECOND)
    assert start == 10 * SECOND
    assert window.steady_start_ns(tokens(counts), 0, 60 * SECOND, latest_ns=9 * SECOND) == 0


def test_false_alarms_of_stationarity_are_rare_and_a_step_is_found():
    """Three standard errors."""
    rng = np.random.default_rng(2)
    noise = 100 + rng.normal(0, 5, (500, 60))
    assert np.mean([window.halves_difference_se(row) > 3 for row in noise]) < 0.02
    stepped = noise.copy()
    stepped[:, 30:] += 15
    assert np.mean([window.halves_difference_se(row) > 3 for row in stepped]) > 0.98


def test_halves_that_do_not_vary():
    assert window.halves_difference_se(np.full(40, 7.0)) == 0
    assert window.halves_difference_se(np.repeat([7.0, 8.0], 20)) == 1e6


def test_cv_within_is_the_spread_of_the_mean():
    rng = np.random.default_rng(3)
    runs = 100 + rng.normal(0, 10, (400, 60))
    told = np.mean([window.cv_within(row) for row in runs])
    assert told == pytest.approx(runs.mean(axis=1).std() / 100, rel=0.2)
    assert window.cv_within(np.full(40, 7.0)) == 0
    assert window.cv_within(np.zeros(40)) is None


def test_cv_within_grows_with_correlation():
    rng = np.random.default_rng(4)

    def ratio(row):
        return window.cv_within(row) / (row.std() / row.mean() / np.sqrt(len(row)))

    white = 100 + rng.normal(0, 5, (200, 60))
    slow = 100 + np.repeat(rng.normal(0, 5, (200, 10)), 6, axis=1)
    assert np.mean([ratio(r) for r in slow]) > 1.5 * np.mean([ratio(r) for r in white])
