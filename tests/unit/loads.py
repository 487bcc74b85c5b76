"""Loads on the scripted server of `sse_server`."""

import itertools

from sse_server import answer

from crossover.campaign import Load, Steady, Warmup
from crossover.load.arrivals import ClosedLoop
from crossover.load.client import run_load
from crossover.load.prompts import Prepared

QUICK = Load(
    concurrency=(1,),
    ramp_s=0.05,
    warmup=Warmup(completions_per_client=1, max_s=2),
    steady=Steady(min_s=0.2, completions_per_client=2, max_s=2),
    request_timeout_s=5,
    idle_timeout_s=5,
)


def plain_requests(url):
    host = url.removeprefix("http://")
    for i in itertools.count():
        body = b'{"number":%d}' % i
        yield Prepared(
            i,
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (host.encode(), len(body), body),
        )


def put_load(server, concurrency=1, load=QUICK, **more):
    arrivals = ClosedLoop(concurrency, load.ramp_s)
    run = run_load(server.url, plain_requests(server.url), arrivals, load, **more)
    return run, run.answers


def classes(answers):
    return {a.error_class for a in answers if a.status == "failed"}


def first_then_good(*steps):
    """Request 0 gets `steps`, all others a good answer."""

    def script(number, body):
        return iter(steps) if number == 0 else answer(events=3, gap_s=0.005)

    return script
