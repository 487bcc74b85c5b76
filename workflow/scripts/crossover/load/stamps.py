"""When reads arrived: by the kernel where it says so, else by this process."""

from __future__ import annotations

import contextlib
import socket
import time

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it


def ask_kernel(sock: socket.socket) -> None:
    """Have the kernel stamp what arrives at `sock`, where the system can."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class Stamps:
    """Moves kernel stamps (CLOCK_REALTIME) to CLOCK_MONOTONIC, and counts what was stamped.

    reads: reads of all connections; `unstamped` of them came without a kernel stamp and have
        the time at which this process read them.
    events: pieces of body in them; a server that writes an event a chunk fills one with each.
    """

    def __init__(self, connections: int) -> None:
        self.connections = connections
        self.reads = self.unstamped = self.events = 0
        self.first_ns = self.offset_ns = self._measure()

    @property
    def source(self) -> str:
        """Either "kernel", or "user": nothing was read, or more than 1 % had no kernel stamp.

        The first packet of each connection may lack one: the kernel begins to stamp a little
        after it is first asked on a host.
        """
        allowed = max(self.connections, self.reads // 100)
        return "kernel" if self.unstamped < self.reads and self.unstamped <= allowed else "user"

    def update(self) -> None:
        """Follow a wall clock that is being set during the run."""
        self.offset_ns = self._measure()

    @property
    def drift_us(self) -> float:
        """Change of wall against monotonic clock since the beginning."""
        return (self.offset_ns - self.first_ns) / 1000

    @staticmethod
    def _measure() -> int:
        def bracket() -> tuple[int, int]:
            before = time.monotonic_ns()
            wall = time.time_ns()
            after = time.monotonic_ns()
            return after - before, wall - (before + after) // 2

        return min(bracket() for _ in range(5))[1]
