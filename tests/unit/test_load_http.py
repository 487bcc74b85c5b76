"""What HTTP brings beside good answers, and what a user is told of it."""

import itertools
import socket
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loads import QUICK, classes, first_then_good, put_load
from sse_server import CLOSE, HEAD, LAST_CHUNK, SseServer, chunked, content, event, status, usage

from crossover.campaign import Steady, Warmup
from crossover.load.arrivals import ClosedLoop
from crossover.load.client import run_load
from crossover.load.prompts import Prepared

GOOD = event(content("a")) + event(content("b", "stop")) + event(usage(2))
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@pytest.mark.parametrize(
    "steps",
    [
        [PLAIN_HEAD + b"Content-Length: %d\r\n\r\n" % len(GOOD), GOOD[:20], 0.01, GOOD[20:]],
        [b"HTTP/1.1 100 Continue\r\n\r\n", 0.01, HEAD + chunked(GOOD) + LAST_CHUNK],
        [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + HEAD + chunked(GOOD) + LAST_CHUNK],
        [HEAD + chunked(GOOD) + b"0\r\nX-Took: 5\r\nDigest: 3\r\n\r\n"],
        [HEAD + b'%x;note="a;b"\r\n%b\r\n' % (len(GOOD), GOOD) + b"0;last\r\n\r\n"],
        [HEAD, 0.01, chunked(GOOD) + LAST_CHUNK],
        [b"HTTP/1.0 200 OK\r\n\r\n" + GOOD, CLOSE],
    ],
    ids=[
        "length",
        "continue",
        "hints",
        "trailers",
        "extensions",
        "head alone",
        "HTTP/1.0",
    ],
)
def test_http_in_all_its_forms(steps):
    with SseServer(lambda n, b: iter([*steps, 0.005])) as server:
        _, answers = put_load(server)
    assert classes(answers) == set()
    good = [a for a in answers if a.status == "ok"]
    assert len(good) >= 3
    assert {(a.output_tokens, len(a.sizes), a.exchange.resent) for a in good} == {(2, 2, 0)}


@settings(max_examples=8)
@given(places=st.lists(st.integers(min_value=0), max_size=12))
def test_borders_of_writes_do_not_matter(places):
    whole = HEAD + b"".join(chunked(event(content("é€😀"))) for _ in range(3))
    whole += chunked(event(content(None, "stop")) + event(usage(3))) + LAST_CHUNK
    edges = [0, *sorted(p % len(whole) for p in places), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(edges) if a < b]
    steps = [step for piece in pieces for step in (piece, 0.001)]
    quick = replace(QUICK, ramp_s=0.0, steady=Steady(0.0, 1, 2))
    with SseServer(lambda n, b: iter(steps)) as server:
        _, answers = put_load(server, 1, quick)
    assert classes(answers) == set()
    assert {tuple(a.sizes) for a in answers if a.status == "ok"} == {(9, 9, 9)}


@pytest.mark.parametrize(
    ("steps", "error_class", "said"),
    [
        (
            status(400, b'{"error":{"message":"no such model","code":400}}'),
            "http_400",
            "no such model",
        ),
        (status(422, b'{"detail":"max_tokens"}'), "http_422", "max_tokens"),
        (status(401, b'{"error":"unauthorized"}'), "http_401", "unauthorized"),
        (
            status(502, b"<html><style>p{}</style><h1>502\n Bad Gateway</h1></html>"),
            "http_502",
            "502 Bad Gateway",
        ),
        (
            [b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nhalf of it", 0.02, CLOSE],
            "http_500",
            "half of it",
        ),
        (
            status(307, b"", b"Location: https://other.example/v1\r\n"),
            "redirect",
            "status 307, redirected to https://other.example/v1; give the final address",
        ),
        (
            status(503, b"loading", b"Retry-After: 1\r\n"),
            "http_503",
            "Retry-After 1, paused 1 s: loading",
        ),
        (
            status(429, b"slow down", b"Retry-After: 120\r\n"),
            "http_429",
            "Retry-After 120, paused 2 s: slow down",
        ),
        (
            status(429, b"slow down", b"Retry-After: Mon, 01 Jan 2001 00:00:00 GMT\r\n"),
            "http_429",
            "Retry-After Mon, 01 Jan 2001 00:00:00 GMT, paused 0 s: slow down",
        ),
        (
            status(503, b"", b"Retry-After: soon\r\n"),
            "http_503",
            "Retry-After soon, paused 0 s:",
        ),
        (
            [HEAD + chunked(GOOD) + LAST_CHUNK + HEAD + chunked(GOOD) + LAST_CHUNK],
            "bad_http",
            "second answer",
        ),
        ([HEAD + b"zz\r\n"], "bad_http", "chunk size"),
        ([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"], "bad_http", "101"),
    ],
)
def test_answers_that_are_none_are_classed_and_say_why(steps, error_class, said):
    with SseServer(first_then_good(*steps)) as server:
        _, answers = put_load(server, 2)
    (failed,) = (a for a in answers if a.status == "failed")
    assert failed.error_class == error_class
    assert said in failed.error_message
    assert sum(a.status == "ok" for a in answers) >= 4


def test_retry_after_is_waited_for():
    with SseServer(first_then_good(*status(429, b"", b"Retry-After: 1\r\n"))) as server:
        _, answers = put_load(server, 1)
    refused, after = (a.exchange for a in answers[:2])
    assert after.sent_ns - refused.end_ns >= 1_000_000_000


def test_early_refusal_of_a_large_request_is_read():
    """The server answers and closes before it has taken the request."""

    def refuse():
        sock, _ = listener.accept()
        with sock:
            sock.recv(1000)
            sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
            while sock.recv(1 << 20):  # until the client gives up sending
                pass

    def requests():
        for i in itertools.count():
            yield Prepared(
                i, b"POST / HTTP/1.1\r\nContent-Length: 50000000\r\n\r\n" + bytes(50_000_000)
            )

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        short = replace(QUICK, warmup=Warmup(1, 0.1), steady=Steady(0.1, 1, 0.1))
        run = run_load(url, requests(), ClosedLoop(1, 0.05), replace(short, idle_timeout_s=0.3))
        thread.join()
    assert run.answers[0].error_class == "http_413"
    assert run.answers[0].error_message == "too large"


def test_keep_alive_that_was_closed_between_two_requests_costs_no_answer():
    good = HEAD + chunked(GOOD) + LAST_CHUNK
    with SseServer(lambda n, b: iter([good, CLOSE])) as server:
        run, answers = put_load(server, 2)
    assert classes(answers) == set()
    assert len(run.connect_s) > 2


def test_a_refused_client_whose_connection_is_closed_meanwhile_asks_again():
    with SseServer(first_then_good(*status(503, b"busy"), 0.01, CLOSE)) as server:
        _, answers = put_load(server, 1)
    assert [a.error_class for a in answers if a.status == "failed"] == ["http_503"]
    assert sum(a.status == "ok" for a in answers) >= 3


def test_a_stream_in_the_smallest_pieces_is_completed():
    """Its usage is many reads before its end."""
    wire = HEAD + chunked(GOOD + event("[DONE]")) + LAST_CHUNK
    place = wire.index(b'"completion_tokens"') + 25
    steps = [wire[:place]]
    for i in range(place, len(wire), 4):
        steps += [0.001, wire[i : i + 4]]
    seen = []
    load = replace(QUICK, steady=Steady(1.2, 1, 5))
    with SseServer(lambda n, b: iter(steps)) as server:
        put_load(server, 1, load, on_progress=seen.append)
    assert seen[-1].completed > 0
    assert seen[-1].failed == 0


# ---------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    "steps",
    [
        status(401, b'{"error":{"message":"Incorrect API key: sk-123 is unknown"}}'),
        status(302, b"", b"Location: http://x/?key=sk-123\r\n"),
        [HEAD + chunked(event({"error": {"message": "key sk-123 expired"}})) + LAST_CHUNK],
        [b"HTTP/1.1 200 OK\r\nsk-123\r\n\r\n", 0.02, CLOSE],
        status(500, b"x" * 197 + b"sk-123"),
    ],
)
def test_the_key_is_in_no_message(steps):
    with SseServer(first_then_good(*steps)) as server:
        _, answers = put_load(server, api_key="sk-123")
    (failed,) = (a for a in answers if a.status == "failed")
    assert failed.error_message
    assert "sk-" not in failed.error_message
