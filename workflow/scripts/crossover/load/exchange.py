"""One request and what came back, as it was received."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass(slots=True)
class Exchange:
    """One request and what came back. Times are CLOCK_MONOTONIC ns.

    due_ns: when it was to be sent by a schedule; None: there is none. What is late is the answer,
        not the question: its latencies run from then.
    Read i of the body arrived at `stamps[i]` and held `bodies[i]`. `error_class` is None for an
    answer that HTTP delivered whole (whether it is a good one, `decode` says) and for a
    cancelled one.
    """

    request_id: int
    client: int
    prompt_id: int
    due_ns: int | None = None
    sent_ns: int = 0
    end_ns: int = 0
    stamps: array[int] = field(default_factory=lambda: array("q"))
    bodies: list[bytes] = field(default_factory=list)
    error_class: str | None = None
    error_message: str | None = None
    cancelled: bool = False
    resent: int = 0

    @property
    def start_ns(self) -> int:
        """From when its latencies run."""
        return self.sent_ns if self.due_ns is None else self.due_ns
