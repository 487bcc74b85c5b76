"""A client that is too slow cannot make a server look slow unseen: real ones, held back."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from sse_server import SseServer, answer

pytestmark = pytest.mark.alone

CLIENT = """
import json, sys
from crossover.campaign import Load, Model, Steady, Warmup, Workload
from crossover.engines.base import Engine
from crossover.measure import measure_point
from crossover.prompt_sets import FromFile

class Plain(Engine):
    def command(self, variant, model):
        return None

print("ready", flush=True)
sys.stdin.readline()
measured = measure_point(
    where={
        "campaign": "c", "variant": "v", "workload": "w", "trial": 1, "concurrency": 4,
        "session_id": "s",
    },
    base_url=sys.argv[1],
    engine=Plain(),
    workload=Workload("w", "p.jsonl", "0" * 64, max_tokens=8),
    model=Model("m"),
    load=Load((4,), ramp_s=0.05, warmup=Warmup(1, 5), steady=Steady(2.0, 2, 4.0)),
    seed=1,
    prompts=FromFile(["a", "b"], "0" * 64),
    samples=lambda start_s, end_s: print("over", flush=True) or [],
    server_alive=lambda: None,
)
print(json.dumps(measured.point))
"""

ANSWER_S = 0.4


def script(number, body):
    return answer(events=8, gap_s=ANSWER_S / 8)


@pytest.fixture
def client():
    """A client process on the server of this one, ready to measure."""
    with (
        SseServer(script) as server,
        subprocess.Popen(
            [sys.executable, "-c", CLIENT, server.url],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def load(client):
    """Have it put load on the server, and wait for the end."""
    client.stdin.write("\n")
    client.stdin.flush()
    assert client.stdout.readline() == "over\n"


def point_of(client):
    return json.loads(client.stdout.readline())


def slowdown(point):
    """What the client lost of the 4 requests in flight, by what arrived against the answers' time."""
    return 1 - point["output_throughput_tokens_per_s"] * point["e2e_s_mean"] / (8 * 4)


def test_a_client_that_is_not_held_back_is_no_limit(client):
    load(client)
    point = point_of(client)
    assert slowdown(point) < 0.1
    assert "client_limited" not in point["invalid_reasons"]
    assert 0 < point["send_slip_s_p50"] <= point["send_slip_s_p99"]
    assert point["send_slip_share"] < 0.02


def test_a_client_that_is_stopped_again_and_again_is_the_limit(client):

    def interrupt():
        while not ended.wait(0.08):
            client.send_signal(signal.SIGSTOP)
            ended.wait(0.16)
            client.send_signal(signal.SIGCONT)

    ended = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        load(client)
    finally:
        ended.set()
        thread.join()
    point = point_of(client)
    assert slowdown(point) > 0.05
    assert "client_limited" in point["invalid_reasons"]
    assert point["client_cpu_share"] < 0.9, "its CPU share says nothing"
    assert point["send_slip_share"] > 0.05
    assert point["client_stall_s_max"] > 0.01
    assert point["client_stalled_share"] > 0.05


def test_a_client_that_gets_no_cpu_is_the_limit(client):
    """Others use its core without end, and at a much higher priority."""
    core = {min(os.sched_getaffinity(0))}
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for pid in (client.pid, *(hog.pid for hog in hogs)):
            os.sched_setaffinity(pid, core)
        os.setpriority(os.PRIO_PROCESS, client.pid, 19)
        load(client)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    point = point_of(client)
    assert point["send_slip_share"] == pytest.approx(slowdown(point), abs=0.1)
    assert point["send_slip_share"] < 0.02 or "client_limited" in point["invalid_reasons"]
