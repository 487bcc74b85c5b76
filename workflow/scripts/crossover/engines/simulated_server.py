"""The simulated engine's server: the step-time model on real time, behind real HTTP.

It streams as vLLM does: a chunk with the role alone, one event a step with all its tokens, the
usage in a last chunk without choices, `[DONE]`. A token is a word.

Steps lie on one absolute time line: a step begins where the one before has ended, however late
the event loop has woken, so that its lateness does not add up. Where the batch has run empty, the
next request begins a new one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import httptools

if __name__ == "__main__":  # run as a file, whose own folder would come first
    sys.path[0] = str(Path(__file__).parents[2])

from crossover.engines.simulated_model import Batch, Request, Settings

VERSION = "simulated 1"
TEXT = (
    "the server answers in words that mean nothing but arrive when a real one would send them "
    "and every step of the batch gives each request as many of these as its drafts have earned"
)
WORDS = TEXT.split()

MAX_LAG_S = 0.05
"""Lateness beyond which the time line is moved: a starved process shall not race to catch up."""

FAULT_CHILD_LIFE_S = 600
"""A child left behind on purpose ends by itself at last."""


class Flags(argparse.ArgumentParser):
    """The command line: the model's settings, where to listen, and faults to order."""

    def __init__(self) -> None:
        super().__init__(description=__doc__, allow_abbrev=False, add_help=False)
        self.add_argument("--port", type=int, default=0)
        self.add_argument("--model", default="simulated", help="name of the model served")
        self.add_argument("--seed", type=int, help="of acceptance; absent: new at each start")
        model = self.add_argument_group("step-time model")
        for setting in fields(Settings):
            flag = f"--{setting.name.replace('_', '-')}"
            if isinstance(setting.default, bool):
                model.add_argument(flag, action="store_true")
            else:
                model.add_argument(flag, type=type(setting.default), default=setting.default)
        faults = self.add_argument_group("faults")
        faults.add_argument("--startup-s", type=float, default=0.0, help="before it listens")
        faults.add_argument("--fail-start", type=int, metavar="CODE", help="exit instead")
        faults.add_argument("--unhealthy", action="store_true", help="/health answers 503")
        faults.add_argument("--error-500", action="store_true", help="to every generation")
        faults.add_argument("--die-after", type=int, metavar="N", help="crash at request N + 1")
        faults.add_argument("--hang-after", type=int, metavar="N", help="stall at request N + 1")
        faults.add_argument("--ignore-term", action="store_true")
        faults.add_argument("--fork-child", action="store_true", help="it outlives TERM")
        faults.add_argument("--daemonise-grandchild", action="store_true", help="own session")
        faults.add_argument("--leak-port", action="store_true", help="a child keeps it open")
        faults.add_argument("--stop-s", type=float, default=0.0, help="from TERM to the end")

    def settings(self, argv: list[str]) -> tuple[Settings, argparse.Namespace]:
        """The model's settings and all flags.

        Raises:
            ValueError: unknown flag, or a value that is none.
        """
        parsed = self.parse_args(argv)
        return Settings(**{f.name: getattr(parsed, f.name) for f in fields(Settings)}), parsed

    def error(self, message: str) -> NoReturn:
        """Leave it to the caller how a mistake is told."""
        raise ValueError(message)


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(eq=False)
class Generation(Request):
    """A request with the way its answer is sent."""

    connection: Connection | None = None
    number: int = 0
    model: str = ""
    chat: bool = True
    stream: bool = False
    usage_at_end: bool = False
    usage_always: bool = False

    def words(self, first: int, last: int) -> str:
        """Tokens `first` to `last`, the latter excluded."""
        text = " ".join(WORDS[i % len(WORDS)] for i in range(first, last))
        return f" {text}" if first else text

    def usage(self) -> dict[str, Any]:
        """The usage so far, in the protocol's form."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def events(self, tokens: int) -> bytes:
        """The stream's next events, after a step that gave `tokens`."""
        first = self.output_tokens - tokens
        events = []
        if self.chat and not first:
            events.append(self._choice({"role": "assistant", "content": ""}))
        text = self.words(first, self.output_tokens)
        events.append(self._choice({"content": text}, "length" if self.finished else None))
        if self.finished and self.usage_at_end:
            events.append(self._event(choices=[], usage=self.usage()))
        data = b"".join(_chunk(b"data: " + json.dumps(e).encode() + b"\n\n") for e in events)
        return data + _chunk(b"data: [DONE]\n\n") + _chunk(b"") if self.finished else data

    def answer(self) -> dict[str, Any]:
        """The whole answer as one object."""
        text = self.words(0, self.output_tokens)
        choice = {"index": 0, "finish_reason": "length"}
        choice |= (
            {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        )
        return self._event(choices=[choice], usage=self.usage())

    def _choice(self, delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
        shown = {"delta": delta} if self.chat else {"text": delta["content"]}
        event = self._event(choices=[{"index": 0, **shown, "finish_reason": finish_reason}])
        if self.usage_always:
            event["usage"] = self.usage()
        return event

    def _event(self, **content: Any) -> dict[str, Any]:
        kind = "chat.completion" if self.chat else "text_completion"
        if self.chat and self.stream:
            kind += ".chunk"
        identifier = f"{'chatcmpl' if self.chat else 'cmpl'}-{self.number}"
        return {"id": identifier, "object": kind, "model": self.model, **content}


class Server:
    """Requests in, steps on the time line, events out."""

    def __init__(self, settings: Settings, options: argparse.Namespace) -> None:
        self.settings = settings
        self.options = options
        self.batch = Batch(settings, random.Random(options.seed))
        self.requests = 0
        self._seen: set[str] = set()
        self._arrived = asyncio.Event()
        self._front_end_free = [0.0] * settings.front_end_workers

    async def run(self) -> NoReturn:
        """Step after step, for ever."""
        clock = asyncio.get_running_loop().time
        start = clock()
        while True:
            await _until(start + self.settings.overhead_ms / 1000)
            if not self.batch.running and not self.batch.waiting:
                self._arrived.clear()
                await self._arrived.wait()
                start = clock()
                continue
            end = start + self.batch.begin_step()
            await _until(end)
            for generation, tokens in self.batch.end_step():
                self._send(generation, tokens)
            start = max(end, clock() - MAX_LAG_S)
            if self._past(self.options.hang_after):
                await asyncio.Event().wait()

    def _past(self, limit: int | None) -> bool:
        return limit is not None and self.requests > limit

    def _send(self, generation: Generation, tokens: int) -> None:
        if generation.stream:
            data = generation.events(tokens)
        elif generation.finished:
            data = _response(200, generation.answer())
        else:
            return
        if not self.settings.front_end_us:
            generation.connection.write(data, generation.finished)
            return
        # jobs of a worker end one after another; when is known without running one
        loop = asyncio.get_running_loop()
        worker = generation.number % len(self._front_end_free)
        busy_until = max(self._front_end_free[worker], loop.time())
        self._front_end_free[worker] = busy_until + self.settings.front_end_us / 1e6
        loop.call_at(
            self._front_end_free[worker], generation.connection.write, data, generation.finished
        )

    # -------------------------------------------------------------- routes

    def route(self, method: str, path: str, body: bytes, connection: Connection) -> bytes:
        """The answer, or the head of a stream, or nothing yet.

        Raises:
            Refused: with the status to answer.
        """
        match method, path.partition("?")[0]:
            case "GET", "/health":
                if self.options.unhealthy:
                    raise Refused(503, "unhealthy")
                return _response(200, {"status": "ok"})
            case "GET", "/v1/models":
                served = {"id": self.options.model, "object": "model", "owned_by": "simulated"}
                return _response(200, {"object": "list", "data": [served]})
            case "GET", "/metrics":
                return _response(200, self.metrics(), "text/plain; version=0.0.4")
            case "GET", "/server_info":
                info = {"version": VERSION, "model": self.options.model}
                return _response(200, {**info, "settings": asdict(self.settings)})
            case "POST", "/reset_prefix_cache":
                self._seen.clear()
                return _response(200, {"success": True})
            case "POST", ("/v1/chat/completions" | "/v1/completions") as route:
                return self.generate(body, route == "/v1/chat/completions", connection)
        raise Refused(404, f"no route {method} {path}")

    def generate(self, body: bytes, chat: bool, connection: Connection) -> bytes:
        """Queue a generation; the head of its stream, or nothing yet."""
        if self.options.error_500:
            raise Refused(500, "internal error, as ordered by --error-500")
        generation = self._read(body, chat)
        self.requests += 1
        if self._past(self.options.die_after):
            print(f"simulated: died at request {self.requests}", file=sys.stderr, flush=True)
            os._exit(1)
        generation.connection = connection
        connection.generation = generation
        self.batch.submit(generation)
        self._arrived.set()
        if not generation.stream:
            return b""
        return (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    def _read(self, body: bytes, chat: bool) -> Generation:
        try:
            asked = json.loads(body)
            if chat:
                prompt = " ".join(message["content"] for message in asked["messages"])
            else:
                prompt = asked["prompt"]
            words = len(prompt.split())
            max_tokens = asked.get("max_completion_tokens") or asked.get("max_tokens", 16)
            options = asked.get("stream_options") or {}
            model = asked.get("model", self.options.model)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Refused(400, f"not a request: {error!r}") from None
        if model != self.options.model:
            raise Refused(404, f"The model {model!r} does not exist.")
        if not isinstance(max_tokens, int) or max_tokens < 1:
            raise Refused(400, f"max_tokens must be at least 1, got {max_tokens!r}.")
        if not words:
            raise Refused(400, "The prompt is empty.")
        cached = 0
        if self.settings.prefix_cache:
            cached = words - 1 if prompt in self._seen else 0
            self._seen.add(prompt)
        return Generation(
            prompt_tokens=words,
            max_tokens=max_tokens,
            cached_tokens=cached,
            number=self.requests,
            model=model,
            chat=chat,
            stream=bool(asked.get("stream")),
            usage_at_end=bool(options.get("include_usage")),
            usage_always=bool(options.get("continuous_usage_stats")),
        )

    def metrics(self) -> str:
        """Gauges and counters in Prometheus text format."""
        counts = asdict(self.batch.counts)
        positions = counts.pop("accepted_per_position")
        lines = [
            "# TYPE simulated:requests_running gauge",
            f"simulated:requests_running {len(self.batch.running)}",
            "# TYPE simulated:requests_waiting gauge",
            f"simulated:requests_waiting {len(self.batch.waiting)}",
        ]
        for name, value in counts.items():
            lines.append(f"# TYPE simulated:{name} counter")
            lines.append(f"simulated:{name}_total {value}")
        lines.append("# TYPE simulated:accepted_per_position counter")
        for position, value in enumerate(positions):
            lines.append(f'simulated:accepted_per_position_total{{position="{position}"}} {value}')
        return "\n".join(lines) + "\n"


class Connection(asyncio.Protocol):
    """One client's connection: one request at a time, kept open as the client asks."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.generation: Generation | None = None
        self.parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Called by asyncio."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone: its request costs nothing from the next step on."""
        if self.generation is not None:
            self.server.batch.cancel(self.generation)

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self.url, self.body = b"", b""

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self.url += url

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self.body += body

    def on_message_complete(self) -> None:
        """Called by the parser: answer, or leave it to the steps to come."""
        method = self.parser.get_method().decode()
        try:
            data = self.server.route(method, self.url.decode(), self.body, self)
        except Refused as refused:
            error = {"message": str(refused), "type": "error", "code": refused.status}
            data = _response(refused.status, {"error": error})
        self.write(data, self.generation is None)

    def write(self, data: bytes, complete: bool) -> None:
        """Send a part of an answer; after the last one close unless the client wants more."""
        if self.transport.is_closing():
            return
        self.transport.write(data)
        if complete:
            self.generation = None
            if not self.parser.should_keep_alive():
                self.transport.close()


REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}


def _response(status: int, content: Any, media_type: str = "application/json") -> bytes:
    body = (content if isinstance(content, str) else json.dumps(content)).encode()
    reason = REASONS.get(status, "Service Unavailable")
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: {media_type}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def _until(moment: float) -> None:
    await asyncio.sleep(moment - asyncio.get_running_loop().time())


# ------------------------------------------------------------------ the process


def _leave_child(own_session: bool) -> None:
    """Start a process that survives TERM; with a session of its own, it is nobody's child."""
    child = os.fork()
    if child:
        if own_session:
            os.waitpid(child, 0)
        return
    if own_session:
        os.setsid()
        if os.fork():
            os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(FAULT_CHILD_LIFE_S)
    while True:
        signal.pause()


async def _serve(settings: Settings, options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(signal.SIGINT, stopping.set)
    server = Server(settings, options)
    listener = await loop.create_server(
        lambda: Connection(server), "127.0.0.1", options.port, backlog=1024
    )
    port = listener.sockets[0].getsockname()[1]
    print(f"simulated: listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)
    if options.leak_port:
        _leave_child(own_session=False)
    steps = asyncio.create_task(server.run())
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait({steps, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if steps.done():
        steps.result()  # a bug: show it rather than serve no more tokens
    print("simulated: stopping", file=sys.stderr, flush=True)
    await asyncio.sleep(options.stop_s)
    steps.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await steps


def main(argv: list[str]) -> int:
    """Serve until TERM; the process's exit status."""
    try:
        settings, options = Flags().settings(argv)
    except ValueError as error:
        print(f"simulated: {error}", file=sys.stderr)
        return 2
    if options.fork_child:
        _leave_child(own_session=False)
    if options.daemonise_grandchild:
        _leave_child(own_session=True)
    time.sleep(options.startup_s)
    if options.fail_start is not None:
        print("simulated: failed, as ordered by --fail-start", file=sys.stderr)
        return options.fail_start
    try:
        asyncio.run(_serve(settings, options))
    except OSError as error:
        print(f"simulated: cannot listen on port {options.port}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
