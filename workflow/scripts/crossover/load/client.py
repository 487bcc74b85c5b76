"""The event loop that puts load on a server: requests out, answers in, over plain sockets.

A read is kept as bytes and an arrival time; what it means is decoded after the run, or, where
that would be too much, while the loop waits (`backlog`).
Arrival times are the kernel's (SO_TIMESTAMPNS) where it gives them, so they do not depend on
when this process got to read.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import select
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossover.errors import MeasurementError
from crossover.load import proxies
from crossover.load.backlog import Backlog
from crossover.load.connection import Connection, Dropped, Failure, Place, Unreachable, Untrusted
from crossover.load.exchange import Exchange
from crossover.load.phases import Phases
from crossover.load.process import allow_connections
from crossover.load.prompts import Address
from crossover.load.said import rejection, shown
from crossover.load.stamps import Stamps
from crossover.load.tls import distrust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crossover.campaign import Load
    from crossover.load.arrivals import ClosedLoop, Scheduled
    from crossover.load.decode import Answer
    from crossover.load.prompts import Prepared
    from crossover.load.said import Rejection

_USAGE = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,9})')

_TICK_FROM_EVENTS_PER_S = 1000
"""From here draining at a fixed pace costs less than waking for every read (measured)."""
_MIN_TICK_NS, _MAX_TICK_NS = 1_000_000, 4_000_000
_TICKS_A_GAP = 8
"""A tick is this part of the mean time between two events of a connection: a client's next request
waits half a tick for the end of its last answer to be seen."""

_CONNECT_TIMEOUT_S = 10.0
_OPENING_AT_ONCE = 64
_PAUSE_AFTER_FAILURE_S = 0.05
_MAX_RESENT = 3
_DEADLINES_EVERY_NS = 100_000_000
_PROGRESS_EVERY_NS = 500_000_000
_STALL_NS = 10_000_000


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

    answers: one for each request, in the order in which they were begun.
    window_ns: None when the run ended before the window was closed.
    connect_s: seconds to open each connection, with the TLS handshake.
    stamp_source: "kernel", or "user" where the kernel gave no arrival times.
    clock_drift_us: change of wall against monotonic clock over the run.
    cpu_s: CPU seconds of this process over the run, without what was decoded after it.
    stalls_s: each time in the window that the loop came round more than 10 ms after it was due:
        by how much. The process was not given the CPU, was stopped, or had too much to do.
    in_flight_max: the most requests in flight at once.
    overloaded: as many requests were in flight as may be, which ended the run.
    """

    answers: list[Answer]
    started_at: float
    started_ns: int
    ended_ns: int
    window_ns: tuple[int, int] | None
    connect_s: list[float]
    stamp_source: str
    clock_drift_us: float
    cpu_s: float
    stalls_s: list[float]
    in_flight_max: int
    overloaded: bool


def run_load(
    base_url: str,
    requests: Iterator[Prepared],
    arrivals: ClosedLoop | Scheduled,
    load: Load,
    *,
    cancel_at_close: bool = False,
    api_key: str | None = None,
    on_window: Callable[[str, float], None] = lambda kind, at_s: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    check: Callable[[], None] = lambda: None,
) -> LoadRun:
    """Send requests as they arrive through ramp, warm-up and window.

    The load stays up after the window until all that was in flight at its end has ended, unless
    `cancel_at_close`. A failed request counts for nothing in this plan; a level where nothing
    succeeds is given up after a few failures a client, and one that has more requests in flight
    than `arrivals` allows, at once.

    Args:
        base_url: of the server, http:// or https://.
        requests: endless; taken in order by whichever client is free.
        arrivals: when they are sent: in a closed loop of clients, or on a schedule.
        load: ramp, warm-up, window and timeouts.
        cancel_at_close: end what is in flight when the window closes (fixed output lengths).
        api_key: the key that the requests carry, kept out of all messages.
        on_window: called with "open" or "close" and the monotonic second; must return at once.
        on_progress: called about twice a second.
        check: called about twice a second; what it raises ends the run.

    Raises:
        MeasurementError: the server cannot be reached, or only through a proxy, is not trusted,
            or went away during the run.
    """
    loop = _Loop(base_url, requests, arrivals, load, cancel_at_close, api_key)
    loop.on_window, loop.on_progress, loop.check = on_window, on_progress, check
    return loop.run()


@dataclass(slots=True)
class _Client:
    """Who sends one request at a time. `exchange` is None between two."""

    number: int
    connection: Connection | None = None
    exchange: Exchange | None = None
    payload: bytes = b""

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class _Loop:
    on_window: Callable[[str, float], None]
    on_progress: Callable[[Progress], None]
    check: Callable[[], None]

    def __init__(
        self,
        base_url: str,
        requests: Iterator[Prepared],
        arrivals: ClosedLoop | Scheduled,
        load: Load,
        cancel_at_close: bool,
        api_key: str | None,
    ) -> None:
        self.base_url = base_url
        self.requests = requests
        self.arrivals = arrivals
        self.load = load
        self.cancel_at_close = cancel_at_close

        self.clients = [_Client(n) for n in range(arrivals.clients_at_first)]
        self.by_fd: dict[int, _Client] = {}
        self.ready = deque(itertools.islice(requests, len(self.clients)))
        self.ready_at_least = len(self.ready)
        self.api_key = api_key
        self.begun = self.in_flight = self.in_flight_max = 0
        self.overloaded = False
        self.ended_ns = 0
        self.backlog = Backlog(api_key)
        self.connect_s: list[float] = []
        self.stalls_s: list[float] = []
        self.awaited: set[int] = set()  # request ids in flight when the window closed
        self.refused_in_row = 0
        self.completed_tokens = self.completed_reads = 0

    # ------------------------------------------------------------------ the run

    def run(self) -> LoadRun:
        proxies.refuse(self.base_url)
        allow_connections(self.arrivals.clients_at_most)
        self.started_ns = time.monotonic_ns()
        started_at, cpu_s = time.time(), time.process_time()
        self.stamps = Stamps(len(self.clients))
        with select.epoll() as self.epoll:
            try:
                self._open_connections()
                self._loop()
            finally:
                for client in self.clients:
                    client.disconnect()
        self.stamps.update()
        cpu_s = time.process_time() - cpu_s
        phases = self.phases
        return LoadRun(
            answers=self.backlog.answers(),
            started_at=started_at,
            started_ns=self.started_ns,
            ended_ns=self.ended_ns,
            window_ns=(phases.open_ns, phases.close_ns) if phases.close_ns else None,
            connect_s=self.connect_s,
            stamp_source=self.stamps.source,
            clock_drift_us=self.stamps.drift_us,
            cpu_s=cpu_s,
            stalls_s=self.stalls_s,
            in_flight_max=self.in_flight_max,
            overloaded=self.overloaded,
        )

    def _loop(self) -> None:
        now = time.monotonic_ns()
        self.phases = Phases(
            self.load,
            now,
            clients=self.arrivals.least_in_flight,
            least_completed=self.arrivals.least_completed,
        )
        self.arrivals.start(now)
        self.progress_ns, self.progress_events, self.progress_reads = now, 0, 0
        self.tick_ns, self.finished = 0, False
        deadlines_ns = now
        while not self.finished:
            due_ns = self.arrivals.next_ns
            wake_ns = deadlines_ns if due_ns is None else min(due_ns, deadlines_ns)
            if self.tick_ns:
                wake_ns = min(wake_ns, now + self.tick_ns)
            for fd, _ in self._wait(now, wake_ns, due_ns):
                self._serve(self.by_fd[fd])
            now = time.monotonic_ns()
            if now - wake_ns > _STALL_NS and self.phases.now == "window":
                self.stalls_s.append((now - wake_ns) / 1e9)
            if (spare := self.arrivals.spare()) is not None:
                self._reconnect(self._client(spare))
            self._advance(now)
            while len(self.ready) < self.ready_at_least:
                self.ready.append(next(self.requests))
            if now >= deadlines_ns:
                deadlines_ns = now + _DEADLINES_EVERY_NS
                self._enforce_timeouts(now)
            if now >= self.progress_ns + _PROGRESS_EVERY_NS:
                self._report(now)

    def _wait(self, now: int, wake_ns: int, due_ns: int | None) -> list[tuple[int, int]]:
        """What has arrived by `wake_ns` at the latest; begins what is due by then.

        Decodes meanwhile if it must.
        """
        most = len(self.clients)
        if self.tick_ns:
            while self.backlog.is_full and now < wake_ns:
                self.backlog.work()
                now = time.monotonic_ns()
            time.sleep(max(wake_ns - now, 0) / 1e9)
            if due_ns is not None:  # before the reads, which may be many
                self._begin_due(time.monotonic_ns())
            return self.epoll.poll(0, most)
        while self.backlog.is_full and now < wake_ns:
            if arrived := self.epoll.poll(0, most):
                return arrived
            self.backlog.work()
            now = time.monotonic_ns()
        left_s = max(wake_ns - now, 0) / 1e9
        if wake_ns == due_ns:  # epoll waits in whole milliseconds, no request may
            select.select([self.epoll], (), (), left_s)
            self._begin_due(time.monotonic_ns())
            left_s = 0
        return self.epoll.poll(left_s, most)

    def _begin_due(self, now: int) -> None:
        while (turn := self.arrivals.take(now)) is not None:
            if turn.client >= self.arrivals.clients_at_most:
                self.overloaded = True
                return
            self._begin(self._client(turn.client), turn.due_ns)

    def _advance(self, now: int) -> None:
        phases = self.phases
        if moved := phases.advance(now):
            self.on_window(moved, now / 1e9)
            if moved == "close" and not self.cancel_at_close:
                self.awaited = {k.exchange.request_id for k in self.clients if k.exchange}
        if self.overloaded or phases.hopeless or (phases.now == "tail" and not self.awaited):
            self._finish(now)

    def _finish(self, now: int) -> None:
        self.finished = True
        for client in self.clients:
            if client.exchange is not None:
                client.exchange.cancelled = True
                client.exchange.sent_ns = client.exchange.sent_ns or now
                self._close_exchange(client, now)

    def _report(self, now: int) -> None:
        elapsed_s = (now - self.progress_ns) / 1e9
        stamps = self.stamps
        events_per_s = (stamps.events - self.progress_events) / elapsed_s
        reads_per_s = (stamps.reads - self.progress_reads) / elapsed_s
        self.progress_ns = now
        self.progress_events, self.progress_reads = stamps.events, stamps.reads
        self.tick_ns = _tick_ns(events_per_s, self.in_flight) if stamps.source == "kernel" else 0
        if self.arrivals.next_ns is not None:  # what is due waits for a drain: many short ones
            self.tick_ns = min(self.tick_ns, _MIN_TICK_NS)
        stamps.update()
        self.check()
        self.on_progress(
            Progress(
                elapsed_s=(now - self.started_ns) / 1e9,
                phase=self.phases.now,
                completed=self.phases.completed,
                failed=self.phases.failed,
                in_flight=self.in_flight,
                events_per_s=events_per_s,
                tokens_per_s=reads_per_s * self.completed_tokens / self.completed_reads
                if self.completed_reads
                else None,
            )
        )

    # ------------------------------------------------------------------ connections

    def _open_connections(self) -> None:
        """Open the connections that there are at first, so that no TTFT holds a connect.

        Raises:
            MeasurementError: the server cannot be reached.
        """
        first, *others = self.clients
        try:
            self._open_at_an_address(first)
            self._open_all(others)
        except Untrusted as error:
            raise MeasurementError(distrust(self.base_url, error.message)) from None
        except (OSError, Failure) as error:
            raise MeasurementError(
                f"cannot connect to {self.base_url} ({error}); is the server still up? "
                "See the session's server log"
            ) from None

    def _open_at_an_address(self, client: _Client) -> None:
        """Find the one of the host's addresses that the server answers at."""
        scheme, host, port, _ = Address.of(self.base_url)
        tls_host = host if scheme == "https" else None
        *places, last = (
            Place(family, peer, tls_host)
            for family, _, _, _, peer in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        for self.place in places:
            with contextlib.suppress(Unreachable):
                self._open_all([client])
                return
            client.disconnect()
        self.place = last
        self._open_all([client])

    def _open_all(self, clients: list[_Client]) -> None:
        """Open the connections of `clients`, some at a time (Failure: one of them cannot)."""
        waiting = deque(clients)
        opening = 0
        while waiting or opening:
            while waiting and opening < _OPENING_AT_ONCE:
                self._connect(waiting.popleft())
                opening += 1
                deadline = time.monotonic() + _CONNECT_TIMEOUT_S
            for fd, _ in self.epoll.poll(max(deadline - time.monotonic(), 0)):
                client = self.by_fd[fd]
                if client.connection.ready:
                    self._serve(client)
                else:
                    opening -= self._open(client)
            if time.monotonic() > deadline:
                raise _no_answer()

    def _client(self, number: int) -> _Client:
        """The client of that number; the next one is made when it is first asked for."""
        if number == len(self.clients):
            self.clients.append(_Client(number))
            self.stamps.connections += 1
        return self.clients[number]

    def _reconnect(self, client: _Client) -> None:
        """Have a connection at hand; a request that finds none opens its own."""
        with contextlib.suppress(Failure):
            self._connect(client)

    def _connect(self, client: _Client) -> None:
        """Begin to open a connection (Failure: it cannot even begin)."""
        client.connection = Connection(self.place, self.epoll, self.stamps)
        self.by_fd[client.connection.sock.fileno()] = client

    def _open(self, client: _Client) -> bool:
        """Go on opening a connection; True: it is ready (Failure: it never will be)."""
        if not client.connection.open():
            return False
        self.connect_s.append((time.monotonic_ns() - client.connection.opened_ns) / 1e9)
        self.refused_in_row = 0
        return True

    # ------------------------------------------------------------------ requests

    def _begin(self, client: _Client, due_ns: int | None = None) -> None:
        prepared = self.ready.popleft() if self.ready else next(self.requests)
        client.payload = prepared.payload
        client.exchange = Exchange(self.begun, client.number, prepared.prompt_id, due_ns)
        self.begun += 1
        self.in_flight += 1
        if self.in_flight > self.in_flight_max:
            self.in_flight_max = self.in_flight
            self.phases.clients = max(self.phases.clients, self.in_flight)
        self._send(client)

    def _send(self, client: _Client) -> None:
        """Send the request of `client`, over a new connection if it has none."""
        try:
            if client.connection is None:
                self._connect(client)
            elif client.connection.ready:
                client.connection.send(client.exchange, client.payload)
        except Dropped:
            self._send_again(client)
        except Failure as failure:
            self._fail(client, failure)

    def _serve(self, client: _Client) -> None:
        """Do what an epoll event asks for: go on connecting, read, send on."""
        connection = client.connection
        try:
            if not connection.ready:
                if self._open(client) and client.exchange is not None:
                    connection.send(client.exchange, client.payload)
                return
            ended = connection.read()
            if not ended and connection.unsent:
                connection.flush()
        except Dropped:
            self._send_again(client)
        except Failure as failure:
            self._fail(client, failure)
        else:
            if ended:
                self._end(client)

    def _end(self, client: _Client) -> None:
        """The HTTP answer is whole."""
        exchange, connection = client.exchange, client.connection
        end_ns, response = connection.last_byte_ns, connection.response
        if not connection.reusable:
            client.disconnect()
        if response.status != 200:
            rejected = rejection(response, b"".join(exchange.bodies))
            self._record_failure(client, rejected, end_ns, rejected.pause_s)
            return
        self._close_exchange(client, end_ns)
        tokens = _last_usage(exchange.bodies[-3:]) or _last_usage(exchange.bodies)
        if tokens is None:
            # An error inside a 200 answer: `decode` names it; here it must not count or repeat
            # at full speed.
            self._pause(client)
            return
        self.phases.count_completed(end_ns)
        self.completed_tokens += tokens
        self.completed_reads += len(exchange.stamps)
        if self.arrivals.after_answer(client.number):
            self._begin(client)
        elif client.connection is None:
            self._reconnect(client)

    def _close_exchange(self, client: _Client, end_ns: int) -> None:
        exchange = client.exchange
        exchange.end_ns = end_ns
        self.ended_ns = max(self.ended_ns, end_ns)
        self.awaited.discard(exchange.request_id)
        self.backlog.add(exchange)
        client.exchange = None
        self.in_flight -= 1

    # ------------------------------------------------------------------ failures

    def _send_again(self, client: _Client) -> None:
        """Send again what a connection took without a byte of answer, a few times."""
        client.disconnect()
        exchange = client.exchange
        if exchange is None:  # the server closed an idle connection
            return
        if exchange.resent == _MAX_RESENT:
            message = f"the server closed {_MAX_RESENT + 1} connections without an answer"
            self._fail(client, Failure("connection_dropped", message))
            return
        exchange.resent += 1
        self._send(client)

    def _fail(self, client: _Client, failure: Failure) -> None:
        client.disconnect()
        if isinstance(failure, Unreachable) and failure.refused:
            self.refused_in_row += 1
        if client.exchange is None:  # bytes that nobody asked for
            return
        self._record_failure(client, failure, time.monotonic_ns())
        if self.refused_in_row > max(10, 3 * self.phases.clients):
            raise MeasurementError(
                f"the server at {self.base_url} went away: {self.refused_in_row} connections in a "
                f"row were refused, after {self.phases.completed} answers and "
                f"{self.phases.failed} failed requests; see the session's server log"
            )

    def _record_failure(
        self, client: _Client, failure: Failure | Rejection, end_ns: int, pause_s: float = 0.0
    ) -> None:
        exchange = client.exchange
        exchange.sent_ns = exchange.sent_ns or end_ns
        exchange.error_class = failure.error_class
        exchange.error_message = shown(failure.message, self.api_key)
        self._close_exchange(client, end_ns)
        self._pause(client, pause_s)

    def _pause(self, client: _Client, pause_s: float = 0.0) -> None:
        self.phases.failed += 1
        pause_s = max(pause_s, _PAUSE_AFTER_FAILURE_S)
        self.arrivals.after_failure(client.number, time.monotonic_ns() + int(pause_s * 1e9))

    def _enforce_timeouts(self, now: int) -> None:
        load = self.load
        connecting_since = now - int(_CONNECT_TIMEOUT_S * 1e9)
        sent_by = now - int(load.request_timeout_s * 1e9)
        silent_since = now - int(load.idle_timeout_s * 1e9)
        for client in self.clients:
            connection, exchange = client.connection, client.exchange
            if connection is not None and not connection.ready:
                if connection.opened_ns < connecting_since:
                    self._fail(client, _no_answer())
            elif exchange is None:
                continue
            elif exchange.sent_ns < sent_by:
                message = f"not ended after {load.request_timeout_s:g} s"
                self._fail(client, Failure("timeout", message))
            elif connection.last_byte_ns < silent_since:
                message = f"no byte for {load.idle_timeout_s:g} s"
                self._fail(client, Failure("idle_timeout", message))


def _tick_ns(events_per_s: float, in_flight: int) -> int:
    """The pace at which to drain; 0: wake for every read."""
    if events_per_s < _TICK_FROM_EVENTS_PER_S:
        return 0
    gap_ns = in_flight / events_per_s * 1e9
    return int(min(max(gap_ns / _TICKS_A_GAP, _MIN_TICK_NS), _MAX_TICK_NS))


def _last_usage(bodies: list[bytes]) -> int | None:
    """The tokens that the last usage in there tells; None: there is none."""
    found = _USAGE.findall(b"".join(bodies))
    return int(found[-1]) if found else None


def _no_answer() -> Unreachable:
    return Unreachable(f"no answer in {_CONNECT_TIMEOUT_S:g} s")
