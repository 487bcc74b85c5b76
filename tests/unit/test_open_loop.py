"""Requests on a schedule, over real sockets: when they leave, and from when they are late."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from loads import plain_requests
from sse_server import HEAD_CLOSE, SseServer, answer, status

from crossover import measure, records
from crossover.campaign import Arrivals, Load, Model, Steady, Warmup, Workload
from crossover.engines.base import Engine
from crossover.load import client
from crossover.load.arrivals import Scheduled, arrivals_of, due_times_s
from crossover.load.client import run_load
from crossover.measure import measure_point
from crossover.prompt_sets import FromFile

pytestmark = pytest.mark.alone

RATE = 40.0
LOAD = Load(
    arrivals=Arrivals((RATE,), process="constant", max_in_flight=60),
    ramp_s=0.0,
    warmup=Warmup(1, 5),
    steady=Steady(min_s=0.8, completions_per_client=1, max_s=4),
    request_timeout_s=5,
    idle_timeout_s=5,
)


def put_schedule(server, load=LOAD, rate=RATE, **more):
    arrivals = arrivals_of(load, rate, "seed")
    run = run_load(server.url, plain_requests(server.url), arrivals, load, **more)
    return run, run.answers


def scheduled(server, load=LOAD, rate=RATE, **changed):
    class Plain(Engine):
        def command(self, variant, model):
            return None

    return measure_point(
        where={
            "campaign": "c",
            "variant": "v",
            "workload": "w",
            "trial": 1,
            "request_rate": rate,
            "session_id": "s",
        },
        base_url=server.url,
        engine=Plain(),
        workload=Workload("w", "p.jsonl", "0" * 64, max_tokens=8, **changed),
        model=Model("m"),
        load=load,
        seed=1,
        prompts=FromFile(["a", "b"], "0" * 64),
        samples=lambda start_s, end_s: [],
        server_alive=lambda: None,
    )


class Stamping:
    """A script that notes when each request came."""

    def __init__(self, script):
        self.came_ns = []
        self.script = script

    def __call__(self, number, body):
        self.came_ns.append(time.monotonic_ns())
        return self.script(number, body)


def quick(number, body):
    return answer(events=4, wait_s=0.02)


# ------------------------------------------------------------------ the schedule


def test_a_constant_rate_is_equal_gaps_where_the_server_sees_them():
    script = Stamping(quick)
    with SseServer(script) as server:
        _, answers = put_schedule(server)
    due_s = np.array([a.exchange.due_ns for a in answers]) / 1e9
    assert np.diff(due_s) == pytest.approx(1 / RATE, abs=1e-6)
    # late by the thread of the server at most, never early, and never later and later
    late_s = np.sort(script.came_ns) / 1e9 - due_s
    assert late_s.min() > 0
    assert np.median(late_s) < 0.5 / RATE
    gaps_s = np.diff(np.sort(script.came_ns)) / 1e9
    assert np.mean(gaps_s) == pytest.approx(1 / RATE, rel=0.05)


def test_poisson_arrivals_are_drawn_by_their_seed_and_keep_their_rate():
    drawn = list(itertools.islice(due_times_s("poisson", 5.0, "a"), 20_000))
    assert drawn == list(itertools.islice(due_times_s("poisson", 5.0, "a"), 20_000))
    assert drawn[:10] != list(itertools.islice(due_times_s("poisson", 5.0, "b"), 10))
    gaps = np.diff(drawn)
    assert gaps.mean() == pytest.approx(0.2, rel=0.03)
    assert gaps.std() == pytest.approx(0.2, rel=0.05)
    in_spans, _ = np.histogram(drawn, np.arange(0, drawn[-1], 2.0))
    assert in_spans.var() == pytest.approx(in_spans.mean(), rel=0.1), "counts are Poisson"


def test_requests_leave_at_the_drawn_times():
    load = replace(LOAD, arrivals=replace(LOAD.arrivals, process="poisson"))
    with SseServer(quick) as server:
        _, answers = put_schedule(server, load)
    due_s = np.array([a.exchange.due_ns for a in answers]) / 1e9
    drawn = list(itertools.islice(due_times_s("poisson", RATE, "seed"), len(due_s)))
    assert np.diff(due_s) == pytest.approx(np.diff(drawn), abs=1e-6)
    assert all(a.exchange.sent_ns >= a.exchange.due_ns for a in answers)


def test_both_arms_of_a_trial_get_the_same_bursts_and_trials_others(monkeypatch):
    seeds = []

    def noting(load, level, seed):
        seeds.append(seed)
        return arrivals_of(load, level, seed)

    monkeypatch.setattr(measure, "arrivals_of", noting)
    with SseServer(quick) as server:
        scheduled(server)
        scheduled(server)
    assert seeds[0] == seeds[1] == "1 arrivals w 1 40.0"


# ------------------------------------------------------------------ connections


def test_as_many_connections_as_are_needed_and_a_few_to_spare():
    with SseServer(lambda n, b: answer(events=4, wait_s=0.5)) as server:
        run, answers = put_schedule(server)
    assert run.in_flight_max > 0.4 * RATE
    spare = Scheduled.clients_at_first
    assert run.in_flight_max <= server.connections <= run.in_flight_max + spare
    assert {a.status for a in answers} <= {"ok", "cancelled"}


def test_a_server_that_closes_every_connection_finds_another_at_hand():
    with SseServer(lambda n, b: answer(events=4, wait_s=0.02, head=HEAD_CLOSE)) as server:
        _, answers = put_schedule(server)
    assert {a.status for a in answers} <= {"ok", "cancelled"}
    assert all(a.exchange.resent == 0 for a in answers)
    assert server.connections >= len(answers)


def test_failures_do_not_change_the_schedule():
    def script(number, body):
        return status(503, b"busy") if number % 3 == 0 else quick(number, body)

    with SseServer(script) as server:
        _, answers = put_schedule(server)
    due_s = np.array([a.exchange.due_ns for a in answers]) / 1e9
    assert np.diff(due_s) == pytest.approx(1 / RATE, abs=1e-6)
    assert {a.error_class for a in answers if a.status == "failed"} == {"http_503"}


# ------------------------------------------------------------------ from when answers are late


class StallsOnce:
    """A server of one request at a time that stops for a second in the window."""

    def __init__(self):
        self.lock = threading.Lock()
        self.begun = time.monotonic()
        self.stalled = False

    def __call__(self, number, body):
        with self.lock:
            if not self.stalled and time.monotonic() - self.begun > 1.0:
                self.stalled = True
                time.sleep(1.0)
            yield from answer(events=4)


def test_a_stall_of_the_server_is_in_the_latency_of_all_who_waited():
    """Coordinated omission: who sends only after an answer meets a stall once."""
    load = replace(LOAD, steady=Steady(3.0, 1, 3.0))
    with SseServer(StallsOnce()) as server:
        point = scheduled(server, load)
    rows = point.requests.to_pylist()
    ttfts_s = {row["scheduled_s"]: row["first_token_s"] - row["scheduled_s"] for row in rows}
    begun = max(ttfts_s, key=ttfts_s.get)  # the one that met the whole of it
    assert ttfts_s[begun] >= 0.98
    behind = [(due - begun, ttft) for due, ttft in ttfts_s.items() if 0 <= due - begun < 0.9]
    assert len(behind) >= 0.8 * RATE
    for after_s, ttft_s in behind:
        assert ttft_s >= 0.98 - after_s
    # 40 requests a second over 3 s, of which those of 1 s waited: the mean is 1/6 s and not 1/120
    assert point.point["ttft_s_mean"] > 0.1
    assert point.point["ttft_s_p90"] > 0.5


def test_latencies_run_from_the_schedule_where_the_client_sends_late(monkeypatch):
    """A client that is held up sends late: latencies know it, and the point says so."""
    ended = threading.Event()
    with SseServer(quick) as server, held_up_client(server.url) as process:

        def interrupt():
            while not ended.wait(0.05):
                process.send_signal(signal.SIGSTOP)
                ended.wait(0.15)
                process.send_signal(signal.SIGCONT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            assert process.stdout.readline() == "over\n"
        finally:
            ended.set()
            thread.join()
        point = json.loads(process.stdout.readline())
    assert "client_limited" in point["invalid_reasons"]
    assert point["send_slip_s_p99"] > 0.05
    assert point["ttft_s_mean"] > point["send_slip_s_mean"]


def held_up_client(url):
    program = (
        "import json, sys\n"
        "import test_open_loop as t\n"
        "class Server: url = sys.argv[1]\n"
        "point = t.scheduled(Server, t.replace(t.LOAD, steady=t.Steady(2.0, 1, 2.0)))\n"
        "print('over', flush=True)\n"
        "print(json.dumps(point.point))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    )


# ------------------------------------------------------------------ the point


def test_a_good_point():
    with SseServer(quick) as server:
        result = scheduled(server, replace(LOAD, steady=Steady(2.0, 1, 4.0)))
    point = result.point
    # of answers of 20 ms the client of a machine that others use may well lose a fiftieth
    assert set(point["invalid_reasons"]) <= {"client_limited"}
    assert point["request_rate"] == RATE
    assert point["concurrency"] is None
    assert point["window_completed"] / point["window_s"] == pytest.approx(RATE, rel=0.1)
    # Little's law
    assert point["achieved_concurrency"] == pytest.approx(RATE * point["e2e_s_mean"], rel=0.2)
    assert point["in_flight_limit_reached"] is False
    assert 0 < point["send_slip_s_p50"] <= point["send_slip_s_p99"]
    assert set(point) == {c.name for c in records.POINTS}
    records.to_table([point], records.POINTS)
    start = point["window_start_s"]
    for row in result.requests.to_pylist():
        assert row["in_window"] == (start <= row["scheduled_s"] < start + point["window_s"])


def test_at_a_low_rate_the_window_waits_for_its_completions():
    load = replace(LOAD, steady=Steady(0.1, 1, 10))
    with SseServer(quick) as server:
        point = scheduled(server, load).point
    assert point["warmup_completed"] >= 10
    assert point["window_completed"] >= 20
    assert point["window_s"] >= 19 / RATE


def test_a_rate_without_requests_in_flight_is_no_hung_server():
    load = replace(LOAD, idle_timeout_s=0.6, steady=Steady(0.1, 1, 1), warmup=Warmup(1, 1))
    with SseServer(quick) as server:
        point = scheduled(server, load, rate=0.8).point
    assert point["failed"] == 0
    assert "too_short" in point["invalid_reasons"]


# ------------------------------------------------------------------ overload


class OneAtATime:
    """A server that answers `rate` requests a second, whatever comes."""

    def __init__(self, rate):
        self.lock = threading.Lock()
        self.rate = rate

    def __call__(self, number, body):
        with self.lock:
            time.sleep(1 / self.rate)
        return answer(events=4)


def test_a_backlog_without_end_ends_the_point():
    began = time.monotonic()
    with SseServer(OneAtATime(RATE / 4)) as server:
        point = scheduled(server, replace(LOAD, steady=Steady(60, 1, 60))).point
    assert time.monotonic() - began < 30
    assert point["in_flight_limit_reached"] is True
    assert point["in_flight_max"] == LOAD.arrivals.max_in_flight
    assert {"overloaded", "too_short"} <= set(point["invalid_reasons"])


@pytest.mark.parametrize("tick", [False, True])
def test_many_that_are_due_at_once_beyond_the_limit_end_the_point_too(tick, monkeypatch):
    monkeypatch.setattr(client, "_tick_ns", lambda *_: 1_000_000 if tick else 0)
    load = replace(LOAD, arrivals=replace(LOAD.arrivals, max_in_flight=200))
    with SseServer(lambda n, b: iter([2.0])) as server:
        run, answers = put_schedule(server, load, rate=2000.0)
    assert run.overloaded
    assert run.in_flight_max == len(answers) == 200
    assert run.window_ns is None


def test_a_backlog_that_only_just_grows_is_told_too():
    patient = replace(
        LOAD,
        arrivals=replace(LOAD.arrivals, max_in_flight=1000),
        steady=Steady(4.0, 1, 4.0),
        warmup=Warmup(0, 0.01),
    )
    with SseServer(OneAtATime(RATE / 2)) as server:
        point = scheduled(server, patient, ignore_eos=True).point
    assert point["in_flight_limit_reached"] is False
    assert point["backlog_growth"] > 3
    assert "overloaded" in point["invalid_reasons"]
    assert not point["valid"]
    # the server is as busy as it can be: its throughput says nothing of the backlog
    assert point["output_throughput_tokens_per_s"] == pytest.approx(4 * RATE / 2, rel=0.2)
