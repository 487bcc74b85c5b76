"""Streams that go wrong in every way: each is a right count or a failure with a class, in time.

    .venv/bin/python benchmarks/fuzz_streams.py [--streams N] [--seed S] [--only NUMBER]

A server plays streams that are drawn by a seed (benchmarks/load/fuzzed.py) to the load client as
campaigns use it; what it says of each is held against what is known of it. Exit status 1 where one
does not fit; `--only NUMBER` plays that one again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import itertools
import multiprocessing
import re
import socket
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow" / "scripts"))

from load import fuzzed
from load.fuzzed import Stream
from load.reference import Truth

from crossover.campaign import Load, Steady, Warmup
from crossover.load.arrivals import ClosedLoop
from crossover.load.client import run_load
from crossover.load.decode import Answer
from crossover.load.prompts import Prepared

CLIENTS = 64
RUN_S = 2.0
LOAD = Load(
    (CLIENTS,),
    ramp_s=0.0,
    warmup=Warmup(0, 0.0),
    steady=Steady(RUN_S, 0, RUN_S),
    request_timeout_s=30.0,
    idle_timeout_s=3.0,
)
HANG_S = RUN_S + LOAD.request_timeout_s + 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=100_000, help="at least (%(default)s)")
    parser.add_argument("--seed", default="1", help="draws the streams (%(default)s)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this stream, again and again")
    args = parser.parse_args()
    numbers = itertools.count() if args.only is None else itertools.repeat(args.only)
    wanted = args.streams if args.only is None else 1

    said: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[str] = []
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        server = multiprocessing.get_context("fork").Process(
            target=lambda: asyncio.run(serve(listener, args.seed)), daemon=True
        )
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        while sum(map(Counter.total, said.values())) < wanted:
            for stream, answer, complaint in played(url, numbers, args.seed):
                said[stream.kind][answer.error_class or answer.status] += 1
                if complaint:
                    wrong.append(f"stream {answer.exchange.prompt_id} ({stream.kind}): {complaint}")
        server.terminate()
        server.join()
    print_table(said)
    print("\n".join(wrong[:20]))
    total = sum(map(Counter.total, said.values()))
    print(f"{total - len(wrong)} of {total} streams")
    return bool(wrong)


def played(
    url: str, numbers: Iterator[int], seed: str
) -> Iterator[tuple[Stream, Answer, str | None]]:
    """A run: its streams, what became of each, and what is wrong with that (None: nothing)."""
    requests = (
        Prepared(
            n, b'POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n{"number":%d}' % (11 + len(str(n)), n)
        )
        for n in numbers
    )
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    run = run_load(url, requests, ClosedLoop(CLIENTS, 0.0), LOAD)
    faulthandler.cancel_dump_traceback_later()
    before: dict[int, Stream] = {}
    for answer in run.answers:
        stream = fuzzed.stream(seed, answer.exchange.prompt_id)
        earlier = before.get(answer.exchange.client)
        before[answer.exchange.client] = stream
        if answer.status != "cancelled":
            in_step = earlier is None or not earlier.out_of_step
            yield stream, answer, complaint(stream, answer, in_step)


def complaint(stream: Stream, answer: Answer, in_step: bool) -> str | None:
    """What is wrong with what the client says; None: nothing.

    in_step: nothing was left on the connection by the stream before.
    """
    took_s = (answer.exchange.end_ns - answer.exchange.sent_ns) / 1e9
    if took_s > LOAD.request_timeout_s + 1:
        return f"took {took_s:.1f} s"
    if (answer.status == "ok") != (answer.error_class is None):
        return f"{answer.status} of class {answer.error_class}"
    fate = answer.error_class or answer.status
    if in_step and stream.fates is not None and fate not in stream.fates:
        return f"{fate} ({answer.error_message}), not {' or '.join(sorted(stream.fates))}"
    if answer.status != "ok":
        return None
    counts = None if answer.counts is None else tuple(answer.counts)
    found = Truth(answer.output_tokens, len(answer.sizes), counts, answer.text_digest)
    if found != stream.truth:
        return f"{found}, not {stream.truth}"
    if abs(sum(answer.event_tokens()) - found.output_tokens) > 1e-6:
        return f"tokens of the events add up to {sum(answer.event_tokens())}"
    return None


def print_table(said: dict[str, Counter[str]]) -> None:
    print("| streams | number | ok | failed, by class |")
    print("|---|---|---|---|")
    for kind, fates in sorted(said.items()):
        classes = ", ".join(f"{n} {fate}" for fate, n in fates.most_common() if fate != "ok")
        print(f"| {kind} | {fates.total()} | {fates['ok']} | {classes or '–'} |")


# ---------------------------------------------------------------- the server


async def serve(listener: socket.socket, seed: str) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while await play(reader, writer, seed):
                pass
        writer.close()

    async with await asyncio.start_server(converse, sock=listener) as server:
        await server.serve_forever()


async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seed: str) -> bool:
    """Answer one request; False: the connection is over."""
    request = b""
    while (number := re.search(rb'{"number":(\d+)}', request)) is None:
        if not (more := await reader.read(65536)):
            return False
        request += more
    stream = fuzzed.stream(seed, int(number[1]))
    for write in stream.writes:
        writer.write(write)
        await writer.drain()
        await asyncio.sleep(0)  # the others' turn, in which the client reads this one
    if stream.end == fuzzed.RESET:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    elif stream.end == fuzzed.HALF_CLOSE:
        writer.write_eof()
    if stream.end in (fuzzed.HALF_CLOSE, fuzzed.SILENCE):
        while await reader.read(65536):
            pass
    return stream.end == fuzzed.KEEP


if __name__ == "__main__":
    sys.exit(main())
