import dataclasses
import json
import time

import httpx
import pytest
from sse_server import HEAD, LAST_CHUNK, SseServer, answer, chunked, content, event, status, usage

from crossover import measure, records
from crossover.campaign import Load, Model, Steady, Warmup, Workload
from crossover.engines.base import Counters, Engine, Gauges
from crossover.errors import MeasurementError, ServerDiedError
from crossover.measure import measure_point
from crossover.prompt_sets import FromFile

PROMPTS = FromFile([f"question {i}" for i in range(20)], "0" * 64)
WORKLOAD = Workload("code", "p.jsonl", "0" * 64, max_tokens=24)
LOAD = Load(
    concurrency=(2,),
    ramp_s=0.05,
    warmup=Warmup(1, 5),
    steady=Steady(min_s=0.6, completions_per_client=4, max_s=5),
    request_timeout_s=5,
    idle_timeout_s=5,
)


class CountingEngine(Engine):
    """Counts what the scripted server has sent: two accepted drafts of three a step."""

    name = "counting"

    def __init__(self, server):
        self.server = server
        self.reads = 0

    def command(self, variant, model):
        return None

    def request_fields(self, workload):
        return {"cache_prompt": False}

    def counters(self, http):
        self.reads += 1
        steps = 8.0 * len(self.server.bodies)
        return Counters(
            output_tokens=3 * steps,
            verify_steps=steps,
            drafted_tokens=3 * steps,
            accepted_tokens=2 * steps,
            accepted_per_position=(steps, 0.75 * steps, 0.25 * steps),
        )

    def gauges(self, http):
        return Gauges(running_requests=float(self.server.in_flight))

    def reset_cache(self, http):
        return True


def busy(start_s, end_s, **changed):
    def sample(share):
        return {
            "t": start_s + share * (end_s - start_s),
            "running_requests": 2.0,
            "queued_requests": 0.0,
            "kv_cache_usage": 0.1 + share / 10,
            "server_cpu_s": 5 + 1.5 * share * (end_s - start_s),
            "machine_busy_s": 50 + 3 * share * (end_s - start_s),
            "machine_cores": 4.0,
        } | changed

    return [sample(share) for share in (0.0, 0.5, 0.9)]


def measured(server, concurrency=2, engine=None, workload=WORKLOAD, load=LOAD, **more):
    settings = {"samples": busy, "server_alive": lambda: None} | more
    return measure_point(
        where={
            "campaign": "c",
            "variant": "v",
            "workload": workload.name,
            "trial": 1,
            "concurrency": concurrency,
            "session_id": "s",
        },
        base_url=server.url,
        engine=engine or CountingEngine(server),
        workload=workload,
        model=Model("m"),
        load=load,
        seed=1,
        prompts=PROMPTS,
        **settings,
    )


def good(number, body):
    """24 tokens in 8 events."""
    return answer(events=8, tokens_per_event=3, wait_s=0.02, gap_s=0.01)


def test_a_good_point():
    with SseServer(good) as server:
        engine = CountingEngine(server)
        result = measured(server, engine=engine)
    point = result.point
    assert point["invalid_reasons"] == []
    assert point["valid"]
    assert engine.reads == 4
    assert point["failed"] == 0
    assert point["completed"] + point["cancelled"] == point["requests"] == len(server.bodies)
    assert point["output_tokens_mean"] == 24
    assert point["tokens_per_chunk"] == 3
    assert point["token_times_source"] == "bytes"
    # Two clients, zero think time: tokens of a window are answers of a window (±1 a client).
    answers_in_window = point["output_throughput_tokens_per_s"] * point["window_s"] / 24
    mean_answers = 2 * point["window_s"] / point["e2e_s_mean"]
    assert answers_in_window == pytest.approx(mean_answers, abs=1)
    assert point["achieved_concurrency"] == pytest.approx(2, rel=0.05)
    assert point["cache_reset"] is True
    assert point["engine_output_tokens"] == 24 * len(server.bodies)
    assert point["received_output_tokens"] <= point["engine_output_tokens"]
    assert point["acceptance_length"] == 3
    assert point["acceptance_rate"] == pytest.approx(2 / 3)
    assert point["tokens_per_step"] == 3
    assert point["accepted_per_position"] == [1, 0.75, 0.25]
    assert point["server_cpu_share"] == pytest.approx(1.5)
    assert point["machine_cpu_share"] == pytest.approx(0.75)
    assert point["kv_cache_usage_max"] == pytest.approx(0.19)
    assert point["running_requests_mean"] == 2
    assert point["ttft_s_p50"] < point["e2e_s_p50"]
    assert point["itl_s_mean"] == pytest.approx(
        (point["e2e_s_mean"] - point["ttft_s_mean"]) / 8, rel=0.2
    )
    assert point["cached_tokens_share"] is None


@pytest.mark.parametrize("zeroes", [True, False])
def test_a_reset_that_zeroes_the_counters_costs_no_count(zeroes):
    """What was counted before a point is not the point's, whether or not the reset forgets it."""

    class Earlier(CountingEngine):
        before = 5000.0

        def counters(self, http):
            now = super().counters(http)
            return dataclasses.replace(
                now,
                output_tokens=now.output_tokens + self.before,
                verify_steps=now.verify_steps + self.before,
            )

        def reset_cache(self, http):
            if zeroes:
                self.before = 0.0
            return True

    with SseServer(good) as server:
        point = measured(server, engine=Earlier(server)).point
    assert point["engine_output_tokens"] == 24 * len(server.bodies)
    assert point["acceptance_length"] == 3


def test_tables_fit_the_records():
    with SseServer(good) as server:
        result = measured(server)
    assert result.requests.schema.equals(records.arrow_schema(records.REQUESTS))
    assert result.chunks.schema.equals(records.arrow_schema(records.CHUNKS))
    table = records.to_table([result.point], records.POINTS)
    assert table.num_rows == 1
    json.dumps(result.point, allow_nan=False)
    rows = result.requests.to_pylist()
    assert len(rows) == result.point["requests"]
    assert {r["session_id"] for r in rows} == {"s"}
    start = result.point["window_start_s"]
    for row in rows:
        assert row["in_window"] == (start <= row["sent_s"] < start + result.point["window_s"])
    chunks = {r["request_id"]: r for r in result.chunks.to_pylist()}
    for row in rows:
        if row["status"] == "ok":
            assert len(chunks[row["request_id"]]["offset_us"]) == row["chunks"] == 8


def test_bodies_carry_the_engines_fields_and_the_key():
    with SseServer(good) as server:
        measured(server, api_key="secret")
    assert all(body["cache_prompt"] is False for body in server.bodies)
    assert all(b"Bearer secret" in head for head in server.heads)


def test_fixed_lengths_are_cut_and_estimated():
    def slow(number, body):
        return answer(events=24, gap_s=0.01)

    fixed = Workload("code", "p.jsonl", "0" * 64, max_tokens=24, ignore_eos=True)
    with SseServer(slow) as server:
        result = measured(server, workload=fixed)
    assert result.point["cancelled"] >= 1
    assert result.point["token_times_source"] == "events"
    assert result.point["error_share"] == 0


def test_errors_make_a_point_invalid():
    def script(number, body):
        return status(500, b"broken") if number % 10 == 9 else good(number, body)

    with SseServer(script) as server:
        point = measured(server).point
    assert "errors" in point["invalid_reasons"]
    assert set(point["errors_by_class"]) == {"http_500"}
    assert point["failed"] == point["errors_by_class"]["http_500"]


def test_a_level_that_only_fails_is_an_invalid_point():
    bad = HEAD + chunked(event({"error": {"message": "boom"}})) + LAST_CHUNK
    with SseServer(lambda n, b: iter([bad])) as server:
        point = measured(server).point
    assert {"errors", "no_tokens", "too_short"} <= set(point["invalid_reasons"])
    assert point["error_share"] == 1
    assert point["window_s"] is None
    assert set(point) == {c.name for c in records.POINTS}
    assert point["ttft_s_p50"] is None
    records.to_table([point], records.POINTS)


def test_too_short_a_window_is_invalid():
    hasty = Load((2,), ramp_s=0, warmup=Warmup(1, 5), steady=Steady(0.05, 1, 0.05))
    with SseServer(good) as server:
        point = measured(server, load=hasty).point
    assert "too_short" in point["invalid_reasons"]


@pytest.mark.parametrize(
    ("changed", "limited"),
    [
        ({"queued_requests": 1.0}, True),
        ({"running_requests": 1.0}, False),
        ({"running_requests": 0.5}, False),
        ({"running_requests": 0.5, "queued_requests": None}, True),
        ({"queued_requests": None, "running_requests": None}, False),
    ],
)
def test_a_queue_in_the_server_is_invalid(changed, limited):
    with SseServer(good) as server:
        point = measured(server, samples=lambda a, b: busy(a, b, **changed)).point
    assert ("queue_limited" in point["invalid_reasons"]) is limited


@pytest.mark.parametrize(("sent_share", "limited"), [(1.2, False), (0.5, True)])
def test_tokens_that_the_engine_decoded_and_nobody_got(sent_share, limited):
    class Ahead(CountingEngine):
        def counters(self, http):
            counters = super().counters(http)
            return dataclasses.replace(
                counters, decoded_tokens=24 * len(self.server.bodies) / sent_share
            )

    with SseServer(good) as server:
        point = measured(server, engine=Ahead(server)).point
    assert point["received_share"] == pytest.approx(sent_share, rel=0.2)
    assert ("front_end_limited" in point["invalid_reasons"]) is limited


def test_a_busy_process_in_front_of_the_engine_is_told():
    def samples(start_s, end_s):
        return [
            {**s, "front_end_cpu_s": {"api 7": 0.97 * s["t"], "main 8": 0.1 * s["t"]}}
            for s in busy(start_s, end_s)
        ]

    with SseServer(good) as server:
        point = measured(server, samples=samples).point
    assert point["front_end_cpu_share_max"] == pytest.approx(0.97)
    assert point["front_end_busiest"] == "api 7"
    assert "front_end_busy" in point["warnings"]
    assert point["valid"]


def test_few_samples_do_not_tell_of_a_queue():
    with SseServer(good) as server:
        point = measured(server, samples=lambda a, b: busy(a, b, queued_requests=2.0)[:2]).point
    assert "queue_limited" not in point["invalid_reasons"]


def test_pauses_do_not_hold_the_concurrency():
    """Every second request fails, and a client waits after a failure."""

    def script(number, body):
        return status(503) if number % 2 else answer(events=2, gap_s=0.005)

    with SseServer(script) as server:
        point = measured(server).point
    assert "concurrency_not_held" in point["invalid_reasons"]


def test_a_change_of_speed_is_not_stationary():
    """The server slows down in the middle of the window."""
    opened_s = []

    class Watching(CountingEngine):
        def counters(self, http):
            counters = super().counters(http)
            if self.reads == 2:
                opened_s.append(time.monotonic())
            return counters

    def script(number, body):
        slow = opened_s and time.monotonic() > opened_s[0] + 1
        return answer(events=8, gap_s=0.06 if slow else 0.004)

    load = Load((2,), ramp_s=0, warmup=Warmup(1, 5), steady=Steady(2.0, 2, 2.0))
    with SseServer(script) as server:
        point = measured(server, load=load, engine=Watching(server)).point
    assert "not_stationary" in point["invalid_reasons"]


def test_cached_tokens_are_reported():
    def script(number, body):
        tail = chunked(event(content(None, "stop")) + event(usage(1, 10, cached=6)))
        return iter([HEAD, 0.01, chunked(event(content("a"))), 0.01, tail + LAST_CHUNK])

    with SseServer(script) as server:
        point = measured(server).point
    assert point["cached_tokens_share"] == pytest.approx(0.6)
    assert "prompts_cached" in point["warnings"]
    assert point["tpot_s_p50"] is None


def test_death_of_the_server_is_named():
    long = Load((2,), ramp_s=0, warmup=Warmup(1, 5), steady=Steady(30, 2, 30))
    with SseServer(good) as server:
        died = []

        def alive():
            if len(server.bodies) > 8 and not died:
                server.stop()
                died.append(True)
            return "exit code -9" if died else None

        with pytest.raises(ServerDiedError, match=r"v/code at concurrency 2.*exit code -9"):
            measured(server, load=long, server_alive=alive)


def test_server_that_does_not_answer_beside_the_load(monkeypatch):
    monkeypatch.setattr(measure, "_DEATH_NOTICE_S", 0.2)

    class Silent(CountingEngine):
        def counters(self, http):
            raise httpx.ReadTimeout("timed out")

    with SseServer(good) as server, pytest.raises(MeasurementError, match="beside the load"):
        measured(server, engine=Silent(server))


def test_failed_reading_at_the_windows_ends_is_left_out():
    class Shy(CountingEngine):
        def counters(self, http):
            counters = super().counters(http)
            if self.reads in (2, 3):
                raise httpx.ReadTimeout("timed out")
            return counters

    with SseServer(good) as server:
        point = measured(server, engine=Shy(server)).point
    assert point["tokens_per_step"] == 3
