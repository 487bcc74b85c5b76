"""When the next request starts, and which client sends it."""

from __future__ import annotations

import heapq
import itertools
import random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossover.campaign import Load


LEAST_SCHEDULED_COMPLETED = 20
"""Answers of a window of an open loop, at least, and half as many before it: at low rates, where
hardly a request is in flight, a few a client say nothing."""


class Turn(NamedTuple):
    """A request is due. due_ns: when, by a schedule (CLOCK_MONOTONIC); None: there is none."""

    client: int
    due_ns: int | None


class ClosedLoop:
    """Each client's next request starts when its last one has ended.

    The first ones are spread evenly over the ramp.
    """

    least_completed = 0

    def __init__(self, clients: int, ramp_s: float) -> None:
        self.clients_at_first = self.clients_at_most = self.least_in_flight = clients
        self.step_ns = int(ramp_s * 1e9) // clients
        self.waiting: list[tuple[int, int]] = []

    def start(self, now_ns: int) -> None:
        """The ramp begins."""
        self.waiting = [(now_ns + i * self.step_ns, i) for i in range(self.clients_at_first)]

    @property
    def next_ns(self) -> int | None:
        """When a request is due next (CLOCK_MONOTONIC); None: only after an answer."""
        return self.waiting[0][0] if self.waiting else None

    def take(self, now_ns: int) -> Turn | None:
        """Whose request is due; None: there is none."""
        if self.waiting and self.waiting[0][0] <= now_ns:
            return Turn(heapq.heappop(self.waiting)[1], None)
        return None

    def spare(self) -> int | None:
        """None: there are as many clients as requests in flight."""
        return None

    def after_answer(self, client: int) -> bool:
        """Whether `client`, which has its answer, sends its next request at once."""
        return True

    def after_failure(self, client: int, until_ns: int) -> None:
        """`client` has failed and sends no earlier than `until_ns`."""
        heapq.heappush(self.waiting, (until_ns, client))


class Scheduled:
    """Requests start at times that are set beforehand, whatever has been answered (open loop).

    A client is a connection here: a request goes to the one that was free last, or to a new one.
    A few are there before they are needed, so that few requests wait for a connection.
    """

    clients_at_first = 8
    least_in_flight = 1
    least_completed = LEAST_SCHEDULED_COMPLETED

    def __init__(self, due_s: Iterator[float], max_in_flight: int) -> None:
        self.due_s = due_s
        self.clients_at_most = max_in_flight
        self.clients_at_first = min(self.clients_at_first, max_in_flight)
        self.free = list(range(self.clients_at_first))
        self.clients = self.clients_at_first

    def start(self, now_ns: int) -> None:
        """The schedule begins."""
        self.start_ns = now_ns
        self._schedule()

    def _schedule(self) -> None:
        self.next_ns = self.start_ns + round(next(self.due_s) * 1e9)

    def take(self, now_ns: int) -> Turn | None:
        """Whose request is due, be it a client that is not there yet; None: there is none."""
        if now_ns < self.next_ns:
            return None
        due_ns = self.next_ns
        self._schedule()
        return Turn(self.free.pop() if self.free else self.another(), due_ns)

    def spare(self) -> int | None:
        """A further client, whose connection may open before it is needed; None: there are enough."""
        if len(self.free) >= self.clients_at_first or self.clients >= self.clients_at_most:
            return None
        number = self.another()
        self.free.insert(0, number)
        return number

    def another(self) -> int:
        """A further client."""
        self.clients += 1
        return self.clients - 1

    def after_answer(self, client: int) -> bool:
        """Whether `client`, which has its answer, sends its next request at once: it waits."""
        self.free.append(client)
        return False

    def after_failure(self, client: int, until_ns: int) -> None:
        """`client` has failed; the schedule goes on, and with other clients first."""
        self.free.insert(0, client)


def arrivals_of(load: Load, level: float, seed: str) -> ClosedLoop | Scheduled:
    """The arrivals of one level of a load."""
    if load.arrivals is None:
        return ClosedLoop(int(level), load.ramp_s)
    due_s = due_times_s(load.arrivals.process, level, seed)
    return Scheduled(due_s, load.arrivals.max_in_flight)


def due_times_s(process: str, request_rate: float, seed: str) -> Iterator[float]:
    """When requests are due, seconds from the start, without end.

    Args:
        process: `constant`, equal gaps; `poisson`, independent exponential ones.
        request_rate: requests a second.
        seed: draws the gaps; the same for all variants, so that they get the same bursts.
    """
    if process == "constant":
        return (i / request_rate for i in itertools.count())
    gaps = random.Random(seed)
    return itertools.accumulate(gaps.expovariate(request_rate) for _ in itertools.count())
