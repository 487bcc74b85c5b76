"""The plan of a run: ramp, warm-up, window, tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossover.campaign import Load

_FAILURES_A_CLIENT = 2
_FAILURES = 20


class Phases:
    """Which phase a run is in, by time and completed requests. Times are CLOCK_MONOTONIC ns.

    clients: of a closed loop; of an open one the most requests that were in flight so far.
    least_completed: answers that the window takes at least, whatever the clients, and half of them
        the warm-up.
    open_ns, close_ns: the window; 0 until it opens, and until it closes.
    completed: HTTP answers with usage; `completed_in_window` those that ended in it so far.
    """

    def __init__(self, load: Load, start_ns: int, *, clients: int, least_completed: int) -> None:
        self.warmup, self.steady = load.warmup, load.steady
        self.clients = clients
        self.least_completed = least_completed
        self.now = "ramp"
        self.ramp_end_ns = start_ns + int(load.ramp_s * 1e9)
        self.open_ns = self.close_ns = 0
        self.completed = self.completed_in_window = self.failed = 0

    def count_completed(self, end_ns: int) -> None:
        """An answer with usage ended then."""
        self.completed += 1
        if self.now == "window" and end_ns >= self.open_ns:
            self.completed_in_window += 1

    @property
    def hopeless(self) -> bool:
        """Nothing but failures, a few a client."""
        return not self.completed and self.failed > max(
            _FAILURES, _FAILURES_A_CLIENT * self.clients
        )

    def advance(self, now_ns: int) -> str | None:
        """Move on; "open" or "close" where the window just did."""
        if self.now == "ramp" and now_ns >= self.ramp_end_ns:
            self.now = "warmup"
        if self.now == "warmup" and (
            self.completed
            >= max(self.warmup.completions_per_client * self.clients, self.least_completed // 2)
            or now_ns >= self.ramp_end_ns + self.warmup.max_s * 1e9
        ):
            self.now = "window"
            self.open_ns = now_ns
            return "open"
        if self.now == "window":
            steady = self.steady
            length_s = (now_ns - self.open_ns) / 1e9
            if length_s >= steady.max_s or (
                length_s >= steady.min_s
                and self.completed_in_window
                >= max(steady.completions_per_client * self.clients, self.least_completed)
            ):
                self.now = "tail"
                self.close_ns = now_ns
                return "close"
        return None
