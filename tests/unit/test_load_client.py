import itertools
import re
import select
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from loads import QUICK, classes, first_then_good, plain_requests, put_load
from sse_server import (
    CLOSE,
    HEAD,
    HEAD_CLOSE,
    LAST_CHUNK,
    RESET,
    SseServer,
    answer,
    chunked,
    content,
    event,
    status,
    usage,
)

from crossover.campaign import Load, Steady, Warmup
from crossover.errors import MeasurementError
from crossover.load import backlog, connection, stamps
from crossover.load import client as client_module
from crossover.load.arrivals import ClosedLoop
from crossover.load.backlog import Backlog
from crossover.load.client import run_load
from crossover.load.exchange import Exchange
from crossover.load.prompts import Prepared
from crossover.load.window import tokens_of


def test_good_answers_arrive_whole_and_in_order():
    with SseServer(lambda n, b: answer(events=5, tokens_per_event=3, gap_s=0.004)) as server:
        run, answers = put_load(server, 3)
    ended = [a for a in answers if a.status != "cancelled"]
    assert {a.status for a in ended} == {"ok"}
    assert {(a.output_tokens, len(a.sizes)) for a in ended} == {(15, 5)}
    assert [a.exchange.request_id for a in answers] == list(range(len(answers)))
    assert {b["number"] for b in server.bodies} == set(range(len(server.bodies)))
    for a in ended:
        assert a.exchange.sent_ns < a.stamps_ns[0] <= a.stamps_ns[-1] <= a.exchange.end_ns
        assert a.exchange.resent == 0
    assert server.most_in_flight == 3
    assert server.connections == 3
    assert len(run.connect_s) == 3


def test_plan_holds():
    seen = []
    with SseServer(lambda n, b: answer(events=4, gap_s=0.005)) as server:
        run, answers = put_load(server, 4, on_window=lambda kind, at_s: seen.append((kind, at_s)))
    start, end = run.window_ns
    assert [kind for kind, _ in seen] == ["open", "close"]
    assert [at_s for _, at_s in seen] == pytest.approx([start / 1e9, end / 1e9])
    ends = [a.exchange.end_ns for a in answers if a.status == "ok"]
    assert sum(ns < start for ns in ends) >= 4
    assert sum(start <= ns < end for ns in ends) >= 8
    assert (end - start) / 1e9 >= 0.2
    for a in answers:
        if a.exchange.sent_ns < end:
            assert a.status == "ok"  # followed to its end under load
    # Zero think time: each client's next request leaves after the last one ended, through t1.
    for client in range(4):
        mine = [a.exchange for a in answers if a.exchange.client == client]
        assert all(a.end_ns <= b.sent_ns for a, b in itertools.pairwise(mine))
        assert mine[-1].end_ns >= end


def test_fixed_lengths_are_cancelled_when_the_window_closes():
    with SseServer(lambda n, b: answer(events=30, gap_s=0.01)) as server:
        run, answers = put_load(server, 3, cancel_at_close=True)
    cancelled = [a for a in answers if a.status == "cancelled"]
    assert 1 <= len(cancelled) <= 3
    assert all(a.exchange.sent_ns <= run.window_ns[1] for a in answers)


def test_throughput_of_a_known_server_by_counts():
    """Tokens that the server wrote inside the window are the tokens found in it."""
    written = []

    def script(number, body):
        yield HEAD
        for _ in range(40):
            yield 0.005
            written.append(time.monotonic_ns())
            yield chunked(event(content(" a b")))
        yield chunked(event(content(None, "length")) + event(usage(80)))
        yield LAST_CHUNK

    load = Load(
        (4,), ramp_s=0.1, warmup=Warmup(1, 5), steady=Steady(min_s=1.0, completions_per_client=2)
    )
    with SseServer(script) as server:
        run, answers = put_load(server, 4, load)
    start, end = run.window_ns
    tokens = tokens_of(answers)
    found = sum(tokens.inside(start, end).count)
    truth = 2 * sum(start <= at < end for at in written)
    assert found == pytest.approx(truth, rel=0.02)
    assert tokens.source == "bytes"


@pytest.mark.parametrize(
    ("steps", "error_class"),
    [
        (list(status(503, b"overloaded")), "http_503"),
        ([HEAD + chunked(event(content("a"))), CLOSE], "truncated"),
        ([HEAD + chunked(event(content("a"))), 0.02, RESET], "reset"),
        ([HEAD + chunked(event({"error": {"message": "boom"}})) + LAST_CHUNK], "stream_error"),
        ([HEAD + chunked(event(content("a", "stop"))) + LAST_CHUNK], "no_usage"),
        ([HEAD + chunked(event(content("a")) + event(usage(1))) + LAST_CHUNK], "truncated"),
        ([b"220 mail.example ESMTP\r\n", 0.05, CLOSE], "bad_http"),
    ],
)
def test_one_bad_answer_is_classed_and_the_load_goes_on(steps, error_class):
    with SseServer(first_then_good(*steps)) as server:
        _, answers = put_load(server, 2)
    assert classes(answers) == {error_class}
    assert sum(a.status == "failed" for a in answers) == 1
    assert sum(a.status == "ok" for a in answers) >= 6


def test_what_the_server_said_is_kept():
    with SseServer(first_then_good(*status(503, b"overloaded" * 50))) as server:
        _, answers = put_load(server)
    assert answers[0].error_message == ("overloaded" * 50)[:200]


def test_silence_ends_by_idle_timeout_and_endless_answers_by_timeout():
    load = Load((2,), ramp_s=0, warmup=QUICK.warmup, steady=QUICK.steady)
    silent = first_then_good(HEAD, 3.0)
    with SseServer(silent) as server:
        impatient = Load(**{**vars(load), "idle_timeout_s": 0.3})
        _, answers = put_load(server, 2, impatient)
    assert classes(answers) == {"idle_timeout"}

    def endless():
        yield HEAD
        for _ in range(300):
            yield chunked(event(content("a")))
            yield 0.01

    with SseServer(lambda n, b: endless() if n == 0 else answer(events=2, gap_s=0.01)) as server:
        impatient = Load(**{**vars(load), "request_timeout_s": 0.3})
        _, answers = put_load(server, 2, impatient)
    assert classes(answers) == {"timeout"}


def test_dropped_keep_alive_is_sent_again():
    """Every fourth request finds its connection closed without an answer."""

    def script(number, body):
        return iter([CLOSE]) if number % 4 == 3 else answer(events=3, gap_s=0.002)

    with SseServer(script) as server:
        _, answers = put_load(server, 2)
    assert classes(answers) == set()
    resent = [a for a in answers if a.exchange.resent]
    assert resent
    numbers = [b["number"] for b in server.bodies]
    assert len(numbers) > len(set(numbers))


def test_connection_dropped_again_and_again_is_a_failure():
    with SseServer(lambda n, b: iter([CLOSE])) as server:
        run, answers = put_load(server)
    failed = [a for a in answers if a.status == "failed"]
    assert {a.error_class for a in failed} == {"connection_dropped"}
    assert {a.exchange.resent for a in failed} == {3}
    assert run.window_ns is None


def test_a_level_that_only_fails_is_given_up():
    with SseServer(lambda n, b: status(503)) as server:
        run, answers = put_load(server, 3, Load((3,)))
    assert classes(answers) == {"http_503"}
    assert 20 < len(answers) < 40
    assert run.window_ns is None


def test_errors_in_200_answers_do_not_count_either():
    bad = HEAD + chunked(event({"error": "boom"})) + LAST_CHUNK
    with SseServer(lambda n, b: iter([bad])) as server:
        run, answers = put_load(server, 1, Load((1,)))
    assert classes(answers) == {"stream_error"}
    assert run.window_ns is None


def test_connection_close_after_each_answer():
    with SseServer(lambda n, b: answer(events=3, gap_s=0.003, head=HEAD_CLOSE)) as server:
        run, answers = put_load(server, 2)
    assert classes(answers) == set()
    assert all(a.exchange.resent == 0 for a in answers)
    assert server.connections >= len(server.bodies)
    assert server.connections - 2 <= len(run.connect_s) <= server.connections


def test_body_that_ends_with_the_connection():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    tail = event(content(None, "stop")) + event(usage(2))

    def script(number, body):
        return iter([head, event(content("a")), 0.01, event(content("b")), tail, CLOSE])

    with SseServer(script) as server:
        _, answers = put_load(server)
    assert classes(answers) == set()
    assert sum(a.status == "ok" for a in answers) >= 3


@pytest.mark.parametrize(
    "style",
    [{"newline": b"\r\n"}, {"done": False}, {"running_usage": True}, {"tokens_per_event": 5}],
)
def test_streams_of_all_styles(style):
    with SseServer(lambda n, b: answer(events=6, gap_s=0.003, **style)) as server:
        _, answers = put_load(server)
    good = [a for a in answers if a.status == "ok"]
    assert classes(answers) == set()
    assert {a.output_tokens for a in good} == {6 * style.get("tokens_per_event", 1)}
    assert {a.counts is not None for a in good} == {"running_usage" in style}


def test_events_in_one_read_are_flagged():
    burst = chunked(event(content("a"))) + chunked(event(content("b")))

    def script(number, body):
        tail = chunked(event(content(None, "stop")) + event(usage(3)))
        return iter([HEAD, burst, 0.02, chunked(event(content("c"))), 0.02, tail + LAST_CHUNK])

    with SseServer(script) as server:
        _, answers = put_load(server)
    good = [a for a in answers if a.status == "ok"]
    assert {tuple(a.merged) for a in good} == {(True, True, False)}


def test_large_requests_are_sent_whole():
    def requests(url):
        for prepared in plain_requests(url):
            body = b'{"number":%d,"fill":"%b"}' % (prepared.prompt_id, b"x" * 8_000_000)
            head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            yield Prepared(prepared.prompt_id, head + body)

    with SseServer(lambda n, b: answer(events=2)) as server:
        run = run_load(server.url, requests(server.url), ClosedLoop(1, 0.05), QUICK)
    assert {a.status for a in run.answers} <= {"ok", "cancelled"}
    assert {len(b["fill"]) for b in server.bodies} == {8_000_000}


def test_no_server_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(MeasurementError, match="cannot connect to http://127"):
        run_load(url, plain_requests(url), ClosedLoop(2, 0.05), QUICK)


def test_one_that_sends_without_end_leaves_the_others_their_turn(monkeypatch):
    monkeypatch.setattr(connection, "_READS_AT_ONCE", 2)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        select.epoll() as epoll,
    ):
        place = connection.Place(socket.AF_INET, listener.getsockname(), None)
        seen = stamps.Stamps(1)
        receiver = connection.Connection(place, epoll, seen)
        sender, _ = listener.accept()
        epoll.poll(5)
        assert receiver.open()
        receiver.send(Exchange(0, 0, 0), b"POST / HTTP/1.1\r\n\r\n")
        sender.sendall(HEAD + chunked(b"x" * 60_000))
        assert epoll.poll(5)
        assert not receiver.read()
        assert seen.reads <= 2
        while sum(map(len, receiver.exchange.bodies)) < 60_000:
            assert epoll.poll(5), "what is left is not announced again"
            receiver.read()
        sender.close()
        receiver.close()


def test_server_that_goes_away_ends_the_run():
    with SseServer(lambda n, b: answer(events=3, gap_s=0.005)) as server:

        def stop(kind, at_s):
            server.stop()

        with pytest.raises(MeasurementError, match="went away"):
            put_load(server, 2, Load((2,), ramp_s=0, warmup=QUICK.warmup), on_window=stop)


def test_check_ends_the_run():
    class GoneError(Exception):
        pass

    def check():
        raise GoneError

    server = SseServer(lambda n, b: answer(events=3, gap_s=0.01))
    with server, pytest.raises(GoneError):
        put_load(server, 2, Load((2,)), check=check)


def test_progress_is_reported():
    seen = []
    load = Load((2,), ramp_s=0, warmup=Warmup(1, 5), steady=Steady(1.2, 1, 5))
    with SseServer(lambda n, b: answer(events=5, gap_s=0.004)) as server:
        put_load(server, 2, load, on_progress=seen.append)
    assert len(seen) >= 2
    assert seen[-1].completed > seen[0].completed > 0
    assert all(p.in_flight <= 2 and p.failed == 0 and p.events_per_s > 0 for p in seen)
    assert {p.phase for p in seen} <= {"ramp", "warmup", "window", "tail"}


def test_stamps_are_the_kernels_where_the_system_gives_them():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = socket.create_connection(listener.getsockname())
        sender, _ = listener.accept()
        stamped = False
        with receiver, sender:
            try:
                receiver.setsockopt(socket.SOL_SOCKET, 35, 1)
                for _ in range(20):
                    sender.send(b"x")
                    time.sleep(0.005)  # the option takes hold a little later
                    stamped = bool(receiver.recvmsg(1, 40)[1])
            except OSError:
                stamped = False
    with SseServer(lambda n, b: answer(events=5, gap_s=0.004)) as server:
        run, _ = put_load(server, 2)
    assert run.stamp_source == ("kernel" if stamped else "user")


def test_import_is_light():
    code = "import sys, crossover.load.client, crossover.load.decode, crossover.load.prompts\n"
    code += "print({'pyarrow', 'numpy', 'pandas', 'httpx'} & set(sys.modules))"
    root = Path(__file__).parents[2] / "workflow" / "scripts"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert shown.stdout.strip() == "set()"


def test_room_for_connections_is_made_before_the_run():
    code = "from crossover.load.process import allow_connections\n"
    code += "allow_connections(700)\nprint(open('/proc/self/status').read())"
    root = Path(__file__).parents[2] / "workflow" / "scripts"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert int(re.search(r"FDSize:\s*(\d+)", shown.stdout)[1]) > 700


# ---------------------------------------------------------------------- where times come from


def test_without_kernel_stamps_times_are_this_processes_own(monkeypatch):
    monkeypatch.setattr(stamps, "_SO_TIMESTAMPNS", 9999)  # setsockopt fails
    with SseServer(lambda n, b: answer(events=5, gap_s=0.004)) as server:
        run, answers = put_load(server, 2)
    assert run.stamp_source == "user"
    good = [a for a in answers if a.status == "ok"]
    assert {len(a.sizes) for a in good} == {5}
    for a in good:
        assert a.exchange.sent_ns < a.stamps_ns[0] <= a.stamps_ns[-1] <= a.exchange.end_ns
        assert list(a.stamps_ns) == sorted(a.stamps_ns)


def test_option_that_gives_no_stamps_is_the_same_as_none(monkeypatch):
    monkeypatch.setattr(connection, "_ANCILLARY_BYTES", 0)
    with SseServer(lambda n, b: answer(events=5, gap_s=0.004)) as server:
        run, answers = put_load(server, 2)
    assert run.stamp_source == "user"
    assert classes(answers) == set()


def test_only_kernel_stamps_let_reads_wait_for_a_tick(monkeypatch):
    """A user stamp is taken at the read: the loop must wake for every one."""
    slept = []

    class Time:
        def __getattr__(self, name):
            return getattr(time, name)

        def sleep(self, seconds):
            slept.append(seconds)
            time.sleep(seconds)

    monkeypatch.setattr(client_module, "time", Time())
    load = replace(QUICK, steady=Steady(1.0, 1, 5))  # long enough to see the rate
    runs = []
    for option in (stamps._SO_TIMESTAMPNS, 9999):
        monkeypatch.setattr(stamps, "_SO_TIMESTAMPNS", option)
        slept.clear()
        with SseServer(lambda n, b: answer(events=400)) as server:
            run, _ = put_load(server, 4, load)
        runs.append((run.stamp_source, bool(slept)))
    assert runs[1] == ("user", False)
    assert runs[0] in (("kernel", True), ("user", False))


# ---------------------------------------------------------------------- memory


def test_bytes_of_answers_are_let_go():
    with SseServer(lambda n, b: answer(events=50, gap_s=0.001)) as server:
        _, answers = put_load(server, 2)
    assert {len(a.exchange.bodies) for a in answers} == {0}
    assert {len(a.exchange.stamps) for a in answers} == {0}
    assert {len(a.stamps_ns) for a in answers if a.status == "ok"} == {50}


def test_a_long_run_is_decoded_as_it_goes(monkeypatch):
    """What waits for the end of the run is bounded, whatever the run's length."""
    monkeypatch.setattr(backlog, "_WAITING_READS", 20)
    left = []
    finish = Backlog.answers

    def answers_of(self):
        left.append(self._waiting_reads)
        return finish(self)

    monkeypatch.setattr(Backlog, "answers", answers_of)
    with SseServer(lambda n, b: answer(events=5, gap_s=0.004)) as server:
        _, answers = put_load(server, 2)
    assert classes(answers) == set()
    reads = sum(len(a.sizes) for a in answers)
    assert reads > 2 * 20, "twice what may wait"
    assert left[0] < reads / 2


@pytest.mark.parametrize(
    ("events_per_s", "in_flight", "tick_ms"),
    [
        (0.0, 0, 0),
        (900.0, 100, 0),  # every read wakes
        (50_000.0, 100, 1),  # 2 ms between the events of a connection
        (5_000.0, 80, 2),
        (4_000.0, 100, 3.125),
        (1_000.0, 1000, 4),
    ],
)
def test_the_pace_of_draining_follows_the_gaps(events_per_s, in_flight, tick_ms):
    assert client_module._tick_ns(events_per_s, in_flight) == tick_ms * 1e6
