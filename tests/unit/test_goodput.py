"""Goodput from the table of requests."""

import math

import pandas as pd
import pytest

from crossover import goodput, records
from crossover.campaign import Slo
from crossover.goodput import with_goodput

POINT = {
    "variant": "plain",
    "workload": "code",
    "trial": 1,
    "concurrency": 4,
    "window_start_s": 100.0,
    "window_s": 10.0,
}


def request(sent_s=101.0, ttft_s=0.5, decode_s=1.6, tokens=17, **columns):
    """A success that ends in the window: 16 tokens after the first chunk, 0.1 s each."""
    end_s = sent_s + ttft_s + decode_s
    row = {
        "variant": "plain",
        "workload": "code",
        "trial": 1,
        "concurrency": 4,
        "sent_s": sent_s,
        "first_token_s": sent_s + ttft_s,
        "last_token_s": end_s,
        "end_s": end_s,
        "status": "ok",
        "output_tokens": tokens,
        "first_chunk_tokens": 1,
    }
    return {**row, **columns}


@pytest.fixture
def judged(tmp_path):
    def judge(rows, slo, points=(POINT,)):
        """Goodput of the points; each list of rows a row group of the table."""
        file = tmp_path / "requests.parquet"
        with records.pq.ParquetWriter(file, records.arrow_schema(records.REQUESTS)) as writer:
            for group in rows:
                writer.write_table(records.to_table(group, records.REQUESTS))
        found = with_goodput(pd.DataFrame(points), file, slo)
        return [None if math.isnan(x) else x for x in found["goodput_requests_per_s"]]

    return judge


def test_all_objectives_must_be_met(judged):
    rows = [
        request(),
        request(ttft_s=1.5),
        request(decode_s=3.2),
        request(ttft_s=0.9, decode_s=1.9),
    ]
    assert judged([rows], Slo(ttft_s=1.0)) == [0.3]
    assert judged([rows], Slo(tpot_s=0.13)) == [0.3]
    assert judged([rows], Slo(ttft_s=1.0, tpot_s=0.13)) == [0.2]
    assert judged([rows], Slo(ttft_s=1.0, tpot_s=0.13, e2e_s=2.5)) == [0.1]


def test_requests_count_where_they_end(judged):
    rows = [
        request(sent_s=98.0),
        request(sent_s=97.0),
        request(sent_s=108.0),
        request(sent_s=107.5),
    ]
    assert judged([rows], Slo(ttft_s=1.0)) == [0.2]


def test_failures_and_cancelled_requests_do_not_count(judged):
    rows = [request(), request(status="failed"), request(status="cancelled", output_tokens=None)]
    assert judged([rows], Slo(e2e_s=10.0)) == [0.1]


def test_nothing_good_is_zero_and_nothing_recorded_is_missing(judged):
    points = [POINT, {**POINT, "trial": 2}]
    assert judged([[request(ttft_s=1.5)]], Slo(ttft_s=1.0), points) == [0.0, None]


def test_an_answer_of_one_chunk_meets_an_objective_per_token(judged):
    assert judged([[request(tokens=1)]], Slo(tpot_s=0.01)) == [0.1]


def test_what_an_objective_needs_and_is_not_known_makes_goodput_unknown(judged):
    rows = [request(), request(first_chunk_tokens=None)]
    assert judged([rows], Slo(tpot_s=1.0)) == [None]
    assert judged([rows], Slo(ttft_s=1.0)) == [0.2]


def test_a_point_without_a_window_has_no_goodput(judged):
    assert judged([[request()]], Slo(ttft_s=1.0), [{**POINT, "window_start_s": None}]) == [None]


def test_points_are_kept_apart_and_pieces_added_up(judged, monkeypatch):
    monkeypatch.setattr(goodput, "ROWS_AT_ONCE", 3)
    points = [POINT, {**POINT, "variant": "ngram"}]
    rows = [[request()], [request(), request(variant="ngram")], [request(), request()]]
    assert judged(rows, Slo(ttft_s=1.0), points) == [0.4, 0.1]


def test_an_empty_table_gives_no_goodput(judged):
    assert judged([], Slo(ttft_s=1.0)) == [None]


def test_at_a_request_rate_times_run_from_the_schedule(judged):
    """A request that the client sent 0.6 s late has made its user wait 0.6 s longer."""
    place = {"concurrency": None, "request_rate": 0.5}
    rows = [
        request(scheduled_s=101.0, **place),
        request(scheduled_s=100.4, **place),
    ]
    point = {**POINT, **place, "concurrency": math.nan}
    assert judged([rows], Slo(ttft_s=1.0), [point]) == [pytest.approx(0.1)]
    assert judged([rows], Slo(e2e_s=2.5), [point]) == [pytest.approx(0.1)]
    assert judged([rows], Slo(ttft_s=1.2), [point]) == [pytest.approx(0.2)]
