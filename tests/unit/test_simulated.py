"""The step-time model against its closed form, and the server against both."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from crossover.campaign import Model, Variant, load_campaign
from crossover.engines import get, simulated, simulated_server
from crossover.engines.flags import fill
from crossover.engines.simulated_model import (
    Batch,
    Request,
    Settings,
    steps_per_request,
    true_crossovers,
    true_throughput,
)
from crossover.errors import CampaignError, EngineError

ROOT = Path(__file__).parents[2]
MODEL = Model(name="m")
PLAIN = Settings()
SPECULATING = Settings(drafted_tokens=3)


def variant(**args):
    return Variant(name="v", engine="simulated", model=MODEL, args=args)


# ------------------------------------------------------------------ the model


def closed_loop(settings, concurrency, output_tokens=24, prompt_tokens=12, steps=4000):
    """The batch after `steps` steps of clients that answer at once, in the model's own time."""
    batch = Batch(settings, random.Random(1))
    for _ in range(concurrency):
        batch.submit(Request(prompt_tokens, output_tokens))
    for _ in range(steps):
        batch.begin_step()
        for request, _tokens in batch.end_step():
            if request.finished:
                batch.submit(Request(prompt_tokens, output_tokens))
    return batch


@pytest.mark.parametrize("concurrency", [1, 7, 64])
@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        SPECULATING,
        Settings(drafted_tokens=5, acceptance=0.9, kv_ms_per_token=0.01),
        Settings(drafted_tokens=2, max_running=5, prefill_ms_per_token=0.1, knee=2.0),
    ],
    ids=["plain", "speculating", "memory-heavy", "capped"],
)
def test_step_by_step_throughput_is_the_closed_form(settings, concurrency):
    counts = closed_loop(settings, concurrency).counts
    simulated_tokens_per_s = counts.output_tokens / counts.step_s
    true = true_throughput(settings, concurrency, 24, 12)
    assert simulated_tokens_per_s == pytest.approx(true, rel=0.02)


def test_a_long_answer_takes_its_tokens_over_the_mean_accepted_length_in_steps():
    k, a, n = 3, 0.7, 10_000
    mean_length = (1 - a ** (k + 1)) / (1 - a)
    assert steps_per_request(SPECULATING, n) == pytest.approx(n / mean_length, rel=1e-3)
    assert steps_per_request(PLAIN, n) == n
    assert steps_per_request(SPECULATING, 1) == 1


def test_drafts_are_accepted_in_order_and_counted_as_sent():
    counts = closed_loop(SPECULATING, 8).counts
    first, second, third = counts.accepted_per_position
    assert first > second > third > 0
    assert first + second + third == counts.accepted_tokens
    assert counts.drafted_tokens == 3 * counts.verify_steps
    assert first / counts.verify_steps == pytest.approx(0.7, abs=0.05)


def test_plain_decoding_gives_a_token_a_step():
    batch = closed_loop(PLAIN, 8, steps=100)
    assert batch.counts.output_tokens == 8 * 100
    assert batch.counts.verify_steps == 0


def test_the_cap_queues_in_order_of_arrival():
    batch = Batch(Settings(max_running=2), random.Random(1))
    requests = [Request(1, n) for n in (1, 5, 5, 5)]
    for request in requests:
        batch.submit(request)
    batch.begin_step()
    assert batch.running == requests[:2]
    batch.end_step()
    batch.begin_step()
    assert batch.running == requests[1:3]
    assert list(batch.waiting) == requests[3:]


def test_a_cancelled_request_leaves_batch_and_queue():
    batch = Batch(Settings(max_running=1), random.Random(1))
    running, waiting = Request(1, 5), Request(1, 5)
    batch.submit(running)
    batch.submit(waiting)
    batch.begin_step()
    batch.cancel(running)
    batch.cancel(waiting)
    assert batch.end_step() == []
    assert not batch.waiting


def test_crossovers_are_where_the_arms_are_equal():
    (crossover,) = true_crossovers(PLAIN, SPECULATING, 24, 12)
    arms = [true_throughput(s, crossover, 24, 12) for s in (PLAIN, SPECULATING)]
    assert arms[0] == pytest.approx(arms[1], rel=1e-9)
    assert true_throughput(SPECULATING, 1, 24, 12) > true_throughput(PLAIN, 1, 24, 12)
    assert true_crossovers(PLAIN, PLAIN, 24, 12) == []
    assert true_crossovers(PLAIN, SPECULATING, 24, 12, highest=int(crossover)) == []


def test_a_slow_front_end_bounds_throughput():
    slow = Settings(front_end_us=1000)
    assert true_throughput(slow, 64, 24, 12) == pytest.approx(1000)
    assert true_throughput(Settings(front_end_us=1000, front_end_workers=2), 64, 24, 12) == (
        pytest.approx(2000)
    )
    assert true_throughput(slow, 1, 24, 12) == true_throughput(PLAIN, 1, 24, 12)


# ------------------------------------------------------------------ the engine


def test_the_command_holds_no_path_of_this_machine():
    command = get("simulated").command(variant(**{"drafted-tokens": 3}), MODEL)
    assert command[:2] == ["{python}", "{engines}/simulated_server.py"]
    assert command[-2:] == ["--drafted-tokens", "3"]
    assert not any(str(ROOT) in word or sys.executable in word for word in command)


@pytest.mark.parametrize(
    "args", [{"memory_ms": 8}, {"memory-ms": "heavy"}, {"drafted": 3}, {"knee": True}]
)
def test_a_flag_that_the_server_does_not_know_is_refused(args):
    with pytest.raises(CampaignError, match=r"^args: .*--help"):
        get("simulated").command(variant(**args), MODEL)


def test_the_supplied_campaign_has_one_true_crossover_well_between_two_levels(monkeypatch, capsys):
    path = ROOT / "config" / "campaigns" / "simulated.yaml"
    campaign = load_campaign(yaml.safe_load(path.read_text()), path.name, ROOT)
    monkeypatch.chdir(ROOT)
    simulated.main(str(path))
    assert capsys.readouterr().out.splitlines()[-1] in path.read_text()
    arms = [simulated.settings(campaign.variants[name]) for name in ("plain", "spec-3")]
    (crossover,) = true_crossovers(*arms, 24, 12.85)
    levels = campaign.load.concurrency
    below = max(c for c in levels if c < crossover)
    above = min(c for c in levels if c > crossover)
    for level in (below, above):
        plain, speculating = (true_throughput(arm, level, 24, 12.85) for arm in arms)
        assert abs(speculating / plain - 1) > 0.15


# ------------------------------------------------------------------ the server


@contextlib.contextmanager
def running(**args):
    """A server process with these flags and a client of it."""
    template = get("simulated").command(variant(**args), MODEL)
    folder = Path(simulated_server.__file__).parent
    command = fill(template, python=sys.executable, engines=folder, port=0, model_name="m")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            port = process.stderr.readline().rpartition(":")[2].strip()
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
                yield process, http
        finally:
            process.kill()


def body(stream=True, max_tokens=24, **fields):
    messages = [{"role": "user", "content": "one two three"}]
    options = {"stream_options": {"include_usage": True}} if stream else {}
    asked = {"model": "m", "messages": messages, "stream": stream, "max_tokens": max_tokens}
    return {**asked, **options, **fields}


def events(response):
    assert response.status_code == 200
    lines = [line for line in response.text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


async def load(http, concurrency, seconds):
    """A closed loop: every client keeps one connection and sends as soon as it may."""
    content = json.dumps(body()).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"

    async def client():
        reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
        try:
            while True:
                writer.write(request % (len(content), content))
                await reader.readuntil(b"\r\n0\r\n\r\n")
        finally:
            writer.close()

    clients = [asyncio.create_task(client()) for _ in range(concurrency)]
    done, _pending = await asyncio.wait(clients, timeout=seconds)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    assert not done


@pytest.mark.parametrize("drafted", [0, 3])
@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.alone
def test_a_real_closed_loop_gives_the_true_throughput(drafted, concurrency):
    """In the server's own step time, which a busy machine does not stretch."""
    # the wide overhead gives a starved client time to send its next request
    args = {"memory-ms": 5, "overhead-ms": 15, "drafted-tokens": drafted, "seed": 1}
    with running(**args) as (_, http):
        asyncio.run(load(http, concurrency, 2.0))
        counts = simulated.prometheus.fetch(http).totals
    tokens_per_s = counts["simulated:output_tokens_total"] / counts["simulated:step_s_total"]
    true = true_throughput(simulated.settings(variant(**args)), concurrency, 24, 3)
    assert tokens_per_s == pytest.approx(true, rel=0.1)


def test_it_streams_as_vllm_does():
    with running(**{"drafted-tokens": 3, "acceptance": 0.9, "seed": 1}) as (_, http):
        role, *content, usage = events(http.post("/v1/chat/completions", json=body()))
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    pieces = [event["choices"][0]["delta"]["content"] for event in content]
    assert len("".join(pieces).split()) == 24
    assert len(pieces[0].split()) == 1
    assert max(len(piece.split()) for piece in pieces) == 4
    reasons = [event["choices"][0]["finish_reason"] for event in content]
    assert reasons == [None] * (len(content) - 1) + ["length"]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 24
    assert usage["usage"]["prompt_tokens"] == 3


def test_usage_comes_when_asked_for():
    with running() as (_, http):
        silent = events(http.post("/v1/chat/completions", json=body(stream_options={})))
        options = {"continuous_usage_stats": True}
        told = events(http.post("/v1/chat/completions", json=body(stream_options=options)))
    assert not any("usage" in event for event in silent)
    assert [event["usage"]["completion_tokens"] for event in told[1:]] == list(range(1, 25))


def test_it_answers_at_once_and_completes_text_too():
    with running() as (_, http):
        chat = http.post("/v1/chat/completions", json=body(stream=False)).json()
        asked = {"prompt": "a b", "max_tokens": 3}
        text = http.post("/v1/completions", json=asked).json()
        streamed = events(http.post("/v1/completions", json={**asked, "stream": True}))
    assert len(chat["choices"][0]["message"]["content"].split()) == 24
    assert chat["usage"]["completion_tokens"] == 24
    assert text["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    pieces = [event["choices"][0]["text"] for event in streamed]
    assert "".join(pieces) == text["choices"][0]["text"]


def test_the_engine_reads_what_the_server_tells():
    engine = get("simulated")
    args = {"drafted-tokens": 3, "prefix-cache": True, "max-running": 9, "front-end-workers": 2}
    with running(**args) as (_, http):
        description = engine.describe(http)
        before = engine.counters(http)
        for _ in range(2):
            events(http.post("/v1/chat/completions", json=body()))
        counted = engine.counters(http).since(before)
        gauges = engine.gauges(http)
        confirmed = engine.reset_cache(http)
        events(http.post("/v1/chat/completions", json=body()))
        cached_after_reset = engine.counters(http).since(before).cached_prompt_tokens
    assert description.engine_version == simulated_server.VERSION
    assert description.model == "m"
    assert description.max_running_requests == 9
    assert description.drafted_tokens == 3
    assert description.front_end_processes == 2
    assert description.prefix_cache is True
    assert description.resolved["memory_ms"] == PLAIN.memory_ms
    assert counted.output_tokens == 48
    assert counted.prompt_tokens == 6
    assert counted.cached_prompt_tokens == 2
    # all but the first token of an answer come from verified steps
    assert counted.accepted_tokens + counted.verify_steps == 46
    assert sum(counted.accepted_per_position) == counted.accepted_tokens
    assert (gauges.running_requests, gauges.queued_requests) == (0, 0)
    assert confirmed is True
    assert cached_after_reset == 2


def test_without_speculation_drafts_are_missing_not_zero():
    with running() as (_, http):
        counters = get("simulated").counters(http)
        description = get("simulated").describe(http)
    assert counters.verify_steps is None
    assert counters.accepted_per_position is None
    assert counters.output_tokens == 0
    assert description.drafted_tokens is None
    assert description.speculation_method == "none"


def test_another_server_is_not_taken_for_this_one():
    transport = httpx.MockTransport(lambda request: httpx.Response(404, json={"detail": "?"}))
    with httpx.Client(base_url="http://x", transport=transport) as http:
        with pytest.raises(EngineError, match="/server_info"):
            get("simulated").describe(http)
        with pytest.raises(EngineError, match="no /metrics"):
            get("simulated").gauges(http)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"model": "other"}, 404),
        ({"max_tokens": 0}, 400),
        ({"messages": []}, 400),
        ({"messages": 3}, 400),
    ],
)
def test_a_bad_request_is_refused(fields, status):
    with running() as (_, http):
        response = http.post("/v1/chat/completions", json=body(**fields))
        assert response.status_code == status
        assert response.json()["error"]["message"]
        assert http.get("/nowhere").status_code == 404


def test_a_client_that_leaves_frees_its_place():
    with running(**{"max-running": 1}) as (_, http):
        with http.stream("POST", "/v1/chat/completions", json=body(max_tokens=100_000)) as left:
            lines = left.iter_lines()
            next(lines)
            assert get("simulated").gauges(http).running_requests == 1
        assert len(events(http.post("/v1/chat/completions", json=body()))) == 26


def test_the_front_end_delays_without_loss_or_disorder():
    with running(**{"front-end-us": 20_000, "front-end-workers": 2}) as (_, http):
        _, *content, usage = events(http.post("/v1/chat/completions", json=body(max_tokens=5)))
    text = "".join(event["choices"][0]["delta"]["content"] for event in content)
    assert text.split() == simulated_server.WORDS[:5]
    assert usage["usage"]["completion_tokens"] == 5


# ------------------------------------------------------------------ its faults


def run(*args):
    file = simulated_server.__file__
    return subprocess.run(
        [sys.executable, file, *args], capture_output=True, text=True, timeout=30, check=False
    )


def test_it_fails_to_start_as_ordered():
    result = run("--fail-start", "7", "--startup-s", "0.1")
    assert result.returncode == 7
    assert "--fail-start" in result.stderr


def test_a_taken_port_is_an_error():
    with running() as (_, http):
        result = run("--port", str(http.base_url.port))
    assert result.returncode == 1
    assert f"cannot listen on port {http.base_url.port}" in result.stderr


def test_an_unknown_flag_is_an_error():
    result = run("--memory", "3")
    assert result.returncode == 2
    assert "--memory" in result.stderr


def test_health_and_generation_fail_as_ordered():
    with running(unhealthy=True) as (_, http):
        assert http.get("/health").status_code == 503
    with running(**{"error-500": True}) as (_, http):
        assert http.get("/health").status_code == 200
        assert http.post("/v1/chat/completions", json=body()).status_code == 500


def test_it_dies_as_ordered():
    with running(**{"die-after": 1}) as (process, http):
        events(http.post("/v1/chat/completions", json=body()))
        with pytest.raises(httpx.TransportError):
            http.post("/v1/chat/completions", json=body())
        assert process.wait(10) == 1


def test_it_hangs_as_ordered():
    with running(**{"hang-after": 1}) as (_, http):
        events(http.post("/v1/chat/completions", json=body()))
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/chat/completions", json=body(), timeout=0.5)
        assert http.get("/health").status_code == 200


def test_term_ends_it_unless_ignored():
    with running(**{"stop-s": 0.1}) as (process, _):
        process.terminate()
        assert process.wait(10) == 0
    with running(**{"ignore-term": True}) as (process, http):
        process.terminate()
        assert http.get("/health").status_code == 200
        assert process.poll() is None


@pytest.mark.parametrize("flag", ["fork-child", "daemonise-grandchild"])
def test_what_it_leaves_behind_outlives_term(flag):
    mark = f"left-behind-{os.getpid()}-{flag}"

    def left():
        return [p for p in psutil.process_iter() if p.pid != process.pid and marked(p)]

    def marked(process):
        try:
            return mark in process.cmdline()
        except psutil.Error:
            return False

    with running(model=mark, **{flag: True}) as (process, _):
        (child,) = left()
        try:
            assert (os.getsid(child.pid) == os.getsid(process.pid)) == (flag == "fork-child")
            child.send_signal(signal.SIGTERM)
            process.terminate()
            assert process.wait(10) == 0
            assert left() == [child]
        finally:
            child.kill()


def test_a_leaked_port_stays_open_after_it_has_ended():
    with running(**{"leak-port": True}) as (process, http):
        (child,) = psutil.Process(process.pid).children()
        try:
            process.terminate()
            assert process.wait(10) == 0
            with socket.create_connection((http.base_url.host, http.base_url.port)):
                pass
        finally:
            child.kill()
