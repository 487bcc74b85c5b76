"""Exchanges that have ended: some wait for the end of the run, a long run's are decoded in it."""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING

from crossover.load.decode import Decoding

if TYPE_CHECKING:
    from crossover.load.decode import Answer
    from crossover.load.exchange import Exchange

_EVENTS_A_SLICE = 16
_WAITING_READS = 100_000
"""30 MB, decoded in 0.3 s after the run. Below that a run has no work of its own: at 50 000 events
a second on a shared machine decoding all along had more reads merge (measured)."""


class Backlog:
    """Turns exchanges into answers, a slice of some 50 µs at a time, and lets go of their bytes.

    What is kept is about 14 bytes an event; a read that waits here holds some 300.
    """

    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key
        self._ended: deque[Exchange] = deque()
        self._waiting_reads = 0
        self._decoding: Decoding | None = None
        self._answers: list[Answer] = []

    @property
    def is_full(self) -> bool:
        """More waits than should."""
        return self._waiting_reads > _WAITING_READS

    def add(self, exchange: Exchange) -> None:
        """`exchange` has ended."""
        self._waiting_reads += len(exchange.bodies)
        self._ended.append(exchange)

    def work(self, events: int | None = _EVENTS_A_SLICE) -> None:
        """Decode so many events of an answer, or the rest of it; there must be one."""
        if self._decoding is None:
            self._decoding = Decoding(self._ended.popleft(), self._api_key)
        if self._decoding.advance(events):
            answer = self._decoding.answer
            self._waiting_reads -= len(answer.exchange.bodies)
            answer.exchange.stamps, answer.exchange.bodies = array("q"), []
            self._answers.append(answer)
            self._decoding = None

    def answers(self) -> list[Answer]:
        """All answers, in order of their requests; decodes what is left."""
        while self._decoding or self._ended:
            self.work(None)
        return sorted(self._answers, key=lambda answer: answer.exchange.request_id)
