"""The closed loop: C clients, each with one request in flight, over non-blocking sockets.

The run keeps bytes and arrival times only; what they mean is decoded afterwards (`decode`).
Arrival times are the kernel's (SO_TIMESTAMPNS) where it gives them, so they do not depend on
when this process got to read.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import heapq
import itertools
import math
import os
import re
import resource
import select
import socket
import struct
import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httptools

from crossover.errors import MeasurementError
from crossover.load.prompts import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crossover.campaign import Load
    from crossover.load.prompts import Prepared

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
_TIMESPEC = struct.Struct("@qq")
_READ_BYTES = 16384
_ANCILLARY_BYTES = 40

_USAGE = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')

_TICK_S = 0.001
_TICK_FROM_READS_PER_S = 1000
"""From here draining once a millisecond costs less than waking for every read (measured)."""

_CONNECT_TIMEOUT_S = 10.0
_PAUSE_AFTER_FAILURE_S = 0.05
_MAX_RESENT = 3
_DEADLINES_EVERY_NS = 100_000_000
_PROGRESS_EVERY_NS = 500_000_000
_SPARE_FILES = 64


@dataclass(slots=True)
class Exchange:
    """One request and what came back. Times are CLOCK_MONOTONIC ns.

    Read i of the body arrived at `stamps[i]` and held `bodies[i]`. `error_class` is None for an
    answer that HTTP delivered whole (whether it is a good one, `decode` says) and for a
    cancelled one.
    """

    request_id: int
    client: int
    prompt_id: int
    sent_ns: int = 0
    end_ns: int = 0
    stamps: array[int] = field(default_factory=lambda: array("q"))
    bodies: list[bytes] = field(default_factory=list)
    error_class: str | None = None
    error_message: str | None = None
    cancelled: bool = False
    resent: int = 0


@dataclass(frozen=True)
class Progress:
    """The state of a run, for a person who waits. Completed: HTTP answers with usage.

    tokens_per_s: reads of the last half second times tokens a read of the answers so far; None
        until one has ended.
    """

    elapsed_s: float
    phase: str
    completed: int
    failed: int
    in_flight: int
    events_per_s: float
    tokens_per_s: float | None


@dataclass(frozen=True)
class LoadRun:
    """All that a run leaves. Times are CLOCK_MONOTONIC ns; `started_at` is Unix seconds.

    window_ns: None when the run ended before the window was closed.
    connect_s: seconds to open each connection.
    stamp_source: "kernel", or "user" where the kernel gave no arrival times.
    clock_drift_us: change of wall against monotonic clock over the run.
    cpu_s: CPU seconds of this process over the run.
    """

    exchanges: list[Exchange]
    started_at: float
    started_ns: int
    ended_ns: int
    window_ns: tuple[int, int] | None
    connect_s: list[float]
    stamp_source: str
    clock_drift_us: float
    cpu_s: float


class _Client:
    """One client with its connection; httptools calls the `on_…` methods."""

    __slots__ = (
        "answering",
        "connected",
        "connecting_ns",
        "ended",
        "exchange",
        "framed",
        "keep_alive",
        "last_byte_ns",
        "number",
        "parser",
        "pieces",
        "prepared",
        "sock",
        "status",
        "unsent",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.sock: socket.socket | None = None
        self.connected = False
        self.connecting_ns = 0
        self.exchange: Exchange | None = None
        self.prepared: Prepared | None = None
        self.unsent = memoryview(b"")
        self.last_byte_ns = 0
        self.pieces: list[bytes] = []
        self.expect_answer()

    def expect_answer(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.answering = self.framed = self.ended = False
        self.keep_alive = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self.framed = True

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        self.keep_alive = self.parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.ended = True

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
        self.sock = None
        self.connected = False


class _WallClock:
    """Moves kernel stamps (CLOCK_REALTIME) to CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self.first_ns = self.offset_ns = self._measure()

    def update(self) -> None:
        """Follow a wall clock that is being set during the run."""
        self.offset_ns = self._measure()

    @property
    def drift_us(self) -> float:
        return (self.offset_ns - self.first_ns) / 1000

    @staticmethod
    def _measure() -> int:
        def bracket() -> tuple[int, int]:
            before = time.monotonic_ns()
            wall = time.time_ns()
            after = time.monotonic_ns()
            return after - before, wall - (before + after) // 2

        return min(bracket() for _ in range(5))[1]


def run_closed_loop(
    base_url: str,
    requests: Iterator[Prepared],
    concurrency: int,
    load: Load,
    *,
    cancel_at_close: bool = False,
    on_window: Callable[[str, float], None] = lambda kind, at_s: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    check: Callable[[], None] = lambda: None,
) -> LoadRun:
    """Keep `concurrency` requests in flight through ramp, warm-up and window (METHOD §2).

    The load stays up after the window until all that was in flight at its end has ended, unless
    `cancel_at_close`. A failed request counts for nothing in this plan; a level where nothing
    succeeds is given up after a few failures a client.

    Args:
        base_url: of the server, http:// only.
        concurrency: clients, each with one request in flight.
        requests: endless; taken in order by whichever client is free.
        load: ramp, warm-up, window and timeouts.
        cancel_at_close: end what is in flight when the window closes (fixed output lengths).
        on_window: called with "open" or "close" and the monotonic second; must return at once.
        on_progress: called about twice a second.
        check: called about twice a second; what it raises ends the run.

    Raises:
        MeasurementError: the server cannot be reached, or went away during the run.
    """
    loop = _ClosedLoop(base_url, requests, concurrency, load, cancel_at_close)
    loop.on_window, loop.on_progress, loop.check = on_window, on_progress, check
    return loop.run()


class _ClosedLoop:
    on_window: Callable[[str, float], None]
    on_progress: Callable[[Progress], None]
    check: Callable[[], None]

    def __init__(
        self,
        base_url: str,
        requests: Iterator[Prepared],
        concurrency: int,
        load: Load,
        cancel_at_close: bool,
    ) -> None:
        self.base_url = base_url
        self.address = Address.of(base_url)
        self.requests = requests
        self.concurrency = concurrency
        self.load = load
        self.cancel_at_close = cancel_at_close

        self.clients = [_Client(n) for n in range(concurrency)]
        self.by_fd: dict[int, _Client] = {}
        self.ready = deque(itertools.islice(requests, concurrency))
        self.exchanges: list[Exchange] = []
        self.due: list[tuple[int, int]] = []  # heap of (ns, client that sends then)
        self.connect_s: list[float] = []

        self.phase = "ramp"
        self.completed = self.completed_in_window = self.failed = 0
        self.refused_in_row = 0
        self.open_ns = self.close_ns = 0
        self.awaited: set[int] = set()  # request ids in flight when the window closed
        self.reads = self.unstamped_reads = 0
        self.events = 0
        self.events_per_s = 0.0
        self.completed_tokens = self.completed_reads = 0
        self.tick = False

    # ------------------------------------------------------------------ the run

    def run(self) -> LoadRun:
        _allow_open_files(self.concurrency + _SPARE_FILES)
        self.started_ns = time.monotonic_ns()
        started_at, cpu_s = time.time(), time.process_time()
        with select.epoll() as self.epoll, _no_garbage_collection():
            try:
                self._open_connections()
                self.clock = _WallClock()
                self._loop()
                self.clock.update()
            finally:
                for client in self.clients:
                    client.close()
        return LoadRun(
            exchanges=self.exchanges,
            started_at=started_at,
            started_ns=self.started_ns,
            ended_ns=max((e.end_ns for e in self.exchanges), default=time.monotonic_ns()),
            window_ns=(self.open_ns, self.close_ns) if self.close_ns else None,
            connect_s=self.connect_s,
            stamp_source="kernel" if self._has_kernel_stamps() else "user",
            clock_drift_us=self.clock.drift_us,
            cpu_s=time.process_time() - cpu_s,
        )

    def _loop(self) -> None:
        now = time.monotonic_ns()
        self.ramp_end_ns = now + int(self.load.ramp_s * 1e9)
        step_ns = (self.ramp_end_ns - now) // self.concurrency
        self.due = [(now + i * step_ns, i) for i in range(self.concurrency)]
        self.progress_ns, self.progress_events, self.progress_reads = now, 0, 0
        deadlines_ns = now
        while self.phase != "done":
            wait_s = max(min(self.due[0][0] if self.due else deadlines_ns, deadlines_ns) - now, 0)
            wait_s /= 1e9
            if self.tick:
                time.sleep(min(_TICK_S, wait_s))
                wait_s = 0
            for fd, _ in self.epoll.poll(wait_s, self.concurrency):
                if client := self.by_fd.get(fd):
                    self._serve(client)
            now = time.monotonic_ns()
            while self.due and self.due[0][0] <= now:
                self._begin(self.clients[heapq.heappop(self.due)[1]])
            self._advance(now)
            while len(self.ready) < self.concurrency:
                self.ready.append(next(self.requests))
            if now >= deadlines_ns:
                deadlines_ns = now + _DEADLINES_EVERY_NS
                self._enforce_timeouts(now)
            if now >= self.progress_ns + _PROGRESS_EVERY_NS:
                self._report(now)

    def _advance(self, now: int) -> None:
        """Move from phase to phase: ramp, warmup, window, tail, done (METHOD §2)."""
        load, c = self.load, self.concurrency
        if not self.completed and self.failed > max(20, 2 * c):
            self._finish(now)
        if self.phase == "ramp" and now >= self.ramp_end_ns:
            self.phase = "warmup"
        if self.phase == "warmup" and (
            self.completed >= math.ceil(load.warmup.completions_per_client * c)
            or now >= self.ramp_end_ns + load.warmup.max_s * 1e9
        ):
            self.phase = "window"
            self.open_ns = now
            self.on_window("open", now / 1e9)
        elif self.phase == "window":
            length_s = (now - self.open_ns) / 1e9
            wanted = math.ceil(load.steady.completions_per_client * c)
            if length_s >= load.steady.max_s or (
                length_s >= load.steady.min_s and self.completed_in_window >= wanted
            ):
                self.phase = "tail"
                self.close_ns = now
                self.on_window("close", now / 1e9)
                if not self.cancel_at_close:
                    self.awaited = {k.exchange.request_id for k in self.clients if k.exchange}
        if self.phase == "tail" and not self.awaited:
            self._finish(now)

    def _finish(self, now: int) -> None:
        self.phase = "done"
        for client in self.clients:
            if client.exchange is not None:
                client.exchange.cancelled = True
                client.exchange.sent_ns = client.exchange.sent_ns or now
                client.exchange.end_ns = now
                client.exchange = None
            client.close()

    def _report(self, now: int) -> None:
        elapsed_s = (now - self.progress_ns) / 1e9
        self.events_per_s = (self.events - self.progress_events) / elapsed_s
        reads_per_s = (self.reads - self.progress_reads) / elapsed_s
        self.progress_ns, self.progress_events, self.progress_reads = now, self.events, self.reads
        self.tick = self.events_per_s >= _TICK_FROM_READS_PER_S and self._has_kernel_stamps()
        self.clock.update()
        self.check()
        self.on_progress(
            Progress(
                elapsed_s=(now - self.started_ns) / 1e9,
                phase=self.phase,
                completed=self.completed,
                failed=self.failed,
                in_flight=sum(k.exchange is not None for k in self.clients),
                events_per_s=self.events_per_s,
                tokens_per_s=reads_per_s * self.completed_tokens / self.completed_reads
                if self.completed_reads
                else None,
            )
        )

    def _has_kernel_stamps(self) -> bool:
        # The first packets after the option is first set on a host carry no stamp.
        return self.unstamped_reads <= max(self.concurrency, self.reads // 100) and (
            self.unstamped_reads < self.reads
        )

    # ------------------------------------------------------------------ connections

    def _open_connections(self) -> None:
        """Open all connections, so that no TTFT of the ramp holds a connect."""
        host, port, _ = self.address
        endpoint: tuple = (host, port)
        for client in self.clients:
            before = time.monotonic()
            try:
                sock = socket.create_connection(endpoint, _CONNECT_TIMEOUT_S)
            except OSError as error:
                raise MeasurementError(
                    f"cannot connect to {self.base_url} ({error}); is the server still up? "
                    "See the session's server log"
                ) from None
            self.connect_s.append(time.monotonic() - before)
            self.family, self.peer = sock.family, sock.getpeername()
            endpoint = self.peer[:2]
            self._adopt(client, sock)
            self._connected(client)

    def _adopt(self, client: _Client, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        client.sock = sock
        self.by_fd[sock.fileno()] = client

    def _connect(self, client: _Client) -> None:
        client.connecting_ns = time.monotonic_ns()
        sock = socket.socket(self.family, socket.SOCK_STREAM)
        self._adopt(client, sock)
        code = sock.connect_ex(self.peer)
        if code in (0, errno.EINPROGRESS):
            self.epoll.register(sock, select.EPOLLOUT)
        else:
            self._connect_failed(client, code)

    def _connect_failed(self, client: _Client, code: int) -> None:
        refused = code == errno.ECONNREFUSED
        self.refused_in_row += refused
        self._fail(client, "connect_refused" if refused else "connect_failed", os.strerror(code))
        if self.refused_in_row > max(10, 3 * self.concurrency):
            raise MeasurementError(
                f"the server at {self.base_url} went away: {self.refused_in_row} connections in a "
                f"row were refused, after {self.completed} answers and {self.failed} failed "
                "requests; see the session's server log"
            )

    def _connected(self, client: _Client) -> None:
        assert client.sock is not None
        client.connected = True
        client.expect_answer()
        with contextlib.suppress(FileNotFoundError):
            self.epoll.unregister(client.sock)
        self.epoll.register(client.sock, select.EPOLLIN)
        self.refused_in_row = 0

    # ------------------------------------------------------------------ requests

    def _begin(self, client: _Client) -> None:
        client.prepared = self.ready.popleft() if self.ready else next(self.requests)
        client.exchange = Exchange(
            request_id=len(self.exchanges),
            client=client.number,
            prompt_id=client.prepared.prompt_id,
        )
        self.exchanges.append(client.exchange)
        if client.connected:
            self._send(client)
        else:
            self._connect(client)

    def _send(self, client: _Client) -> None:
        client.unsent = memoryview(client.prepared.payload)
        client.expect_answer()
        client.last_byte_ns = time.monotonic_ns()
        if not client.exchange.sent_ns:  # a request that is sent again has been waiting all along
            client.exchange.sent_ns = client.last_byte_ns
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        try:
            sent = client.sock.send(client.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._dropped(client)
            return
        was_short = len(client.unsent) < len(client.prepared.payload)
        client.unsent = client.unsent[sent:]
        if client.unsent:
            self.epoll.modify(client.sock, select.EPOLLIN | select.EPOLLOUT)
        elif was_short:
            self.epoll.modify(client.sock, select.EPOLLIN)

    def _serve(self, client: _Client) -> None:
        """Do what an epoll event asks for: finish a connect, send on, read."""
        if client.sock is None:
            return
        if not client.connected:
            if code := client.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._connect_failed(client, code)
                return
            self.connect_s.append((time.monotonic_ns() - client.connecting_ns) / 1e9)
            self._connected(client)
            self._send(client)
            return
        self._read(client)
        if client.unsent and client.connected:
            self._flush(client)

    def _read(self, client: _Client) -> None:
        while True:
            try:
                data, ancillary, _, _ = client.sock.recvmsg(_READ_BYTES, _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self._lost(client, error)
                return
            if not data:
                self._lost(client, None)
                return
            if client.exchange is None:
                client.close()  # bytes that nobody asked for
                return
            self.reads += 1
            if ancillary:
                seconds, ns = _TIMESPEC.unpack(ancillary[0][2])
                stamp = seconds * 1_000_000_000 + ns - self.clock.offset_ns
            else:
                self.unstamped_reads += 1
                stamp = time.monotonic_ns()
            client.answering = True
            client.last_byte_ns = stamp
            try:
                client.parser.feed_data(data)
            except httptools.HttpParserError as error:
                self._fail(client, "bad_http", f"{error}: {data[:100]!r}")
                return
            if pieces := client.pieces:
                self.events += len(pieces)
                client.exchange.stamps.append(stamp)
                client.exchange.bodies.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
                pieces.clear()
            if client.ended:
                self._end(client, stamp)
                return
            if len(data) < _READ_BYTES:
                return

    def _end(self, client: _Client, stamp: int) -> None:
        """The HTTP answer is whole."""
        exchange = client.exchange
        if client.status != 200:
            body = b"".join(exchange.bodies)
            self._fail(client, f"http_{client.status}", body.decode(errors="replace"), stamp)
            return
        if not client.keep_alive:
            client.close()
        exchange.end_ns = stamp
        client.exchange = None
        self.awaited.discard(exchange.request_id)
        tokens = _USAGE.search(b"".join(exchange.bodies[-3:]))
        if tokens is None:
            # An error inside a 200 answer: `decode` names it; here it must not count or repeat
            # at full speed.
            self._pause(client)
            return
        self.completed += 1
        self.completed_tokens += int(tokens[1])
        self.completed_reads += len(exchange.stamps)
        if self.phase == "window" and stamp >= self.open_ns:
            self.completed_in_window += 1
        self._begin(client)

    # ------------------------------------------------------------------ failures

    def _lost(self, client: _Client, error: OSError | None) -> None:
        """The connection ended; `error` is None where the server closed it in good order."""
        if client.exchange is None:
            client.close()
        elif not client.answering:
            self._dropped(client)
        elif error is not None:
            self._fail(client, "reset", error.strerror)
        elif client.status and not client.framed:
            client.keep_alive = False
            self._end(client, client.last_byte_ns)
        elif client.status not in (0, 200):
            self._fail(client, f"http_{client.status}", "the answer was cut off")
        else:
            self._fail(client, "truncated", "the connection was closed in mid-answer")

    def _dropped(self, client: _Client) -> None:
        """Send again what a connection took without a byte of answer, a few times."""
        client.close()
        if client.exchange.resent == _MAX_RESENT:
            self._fail(
                client,
                "connection_dropped",
                f"the server closed {_MAX_RESENT + 1} connections without an answer",
            )
        else:
            client.exchange.resent += 1
            self._connect(client)

    def _fail(
        self, client: _Client, error_class: str, message: str, at_ns: int | None = None
    ) -> None:
        exchange = client.exchange
        exchange.end_ns = time.monotonic_ns() if at_ns is None else at_ns
        exchange.sent_ns = exchange.sent_ns or exchange.end_ns
        exchange.error_class = error_class
        exchange.error_message = message[:200]
        client.exchange = None
        client.pieces.clear()
        self.awaited.discard(exchange.request_id)
        if client.unsent or not (client.ended and client.keep_alive):
            client.close()
        self._pause(client)

    def _pause(self, client: _Client) -> None:
        self.failed += 1
        at_ns = time.monotonic_ns() + int(_PAUSE_AFTER_FAILURE_S * 1e9)
        heapq.heappush(self.due, (at_ns, client.number))

    def _enforce_timeouts(self, now: int) -> None:
        load = self.load
        for client in self.clients:
            if client.exchange is None:
                continue
            if not client.connected:
                if now - client.connecting_ns > _CONNECT_TIMEOUT_S * 1e9:
                    self._connect_failed(client, errno.ETIMEDOUT)
            elif now - client.exchange.sent_ns > load.request_timeout_s * 1e9:
                self._fail(client, "timeout", f"not ended after {load.request_timeout_s:g} s")
            elif now - client.last_byte_ns > load.idle_timeout_s * 1e9:
                self._fail(client, "idle_timeout", f"no byte for {load.idle_timeout_s:g} s")


# ---------------------------------------------------------------------- the process


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collections would stop the loop for as long as all kept reads take to walk."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _allow_open_files(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise MeasurementError(
            f"{needed} open files are needed for this concurrency and this process may have "
            f"{hard}; raise the hard limit (ulimit -Hn) or measure lower levels"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
