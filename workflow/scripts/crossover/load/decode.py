"""What the reads of a request mean: chat or completions chunks, usage, errors.

An answer succeeded if it brought content (or reasoning, or a tool call), a finish reason and
usage. Everything else is a failure with a class.
"""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from crossover.load import sse
from crossover.load.repetition import looped_share
from crossover.load.said import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossover.load.exchange import Exchange


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


_Tokens = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _PromptDetails(msgspec.Struct):
    cached_tokens: _Tokens | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct):
    """A chunk of a stream, or a whole answer that was not streamed."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


@dataclass(slots=True)
class Answer:
    """A decoded request. The arrays have one entry for each event with content.

    stamps_ns: arrival of each event; CLOCK_MONOTONIC.
    sizes: bytes of its content.
    counts: its tokens by the server's running usage; None: the server sends none.
    merged: whether it shares its read, and so its stamp, with another.
    output_tokens: by usage; for a request that did not end, what running usage told so far.
    """

    exchange: Exchange
    status: str = "ok"
    error_class: str | None = None
    error_message: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    stamps_ns: Sequence[int] = field(default_factory=lambda: array("q"))
    sizes: Sequence[int] = field(default_factory=lambda: array("i"))
    counts: Sequence[int] | None = None
    merged: Sequence[bool] = field(default_factory=bytearray)
    text_digest: str | None = None
    looped_share: float | None = None

    @property
    def one_token_an_event(self) -> bool:
        """Usage leaves at most one token (a silent end of sequence) without an event."""
        return self.output_tokens is not None and self.output_tokens - len(self.sizes) in (0, 1)

    @property
    def has_event_counts(self) -> bool:
        """Each event's tokens are known, not spread."""
        return self.counts is not None or self.one_token_an_event

    def event_tokens(self) -> list[float]:
        """Tokens of each event; they add up to `output_tokens`.

        By the server's running usage; else one each where usage says so, what is left over with
        the last; else usage spread by content bytes. Empty where usage is unknown.
        """
        if not self.sizes or self.output_tokens is None:
            return []
        if self.counts is not None or self.one_token_an_event:
            tokens = [float(n) for n in self.counts or [1] * len(self.sizes)]
            tokens[-1] += self.output_tokens - sum(tokens)
            return tokens
        per_byte = self.output_tokens / sum(self.sizes)
        return [size * per_byte for size in self.sizes]


def decode(exchange: Exchange, api_key: str | None = None) -> Answer:
    """What the request `exchange` brought; `api_key` is kept out of what the server said."""
    decoding = Decoding(exchange, api_key)
    decoding.advance()
    return decoding.answer


class Decoding:
    """The decoding of one exchange, which can be done a few events at a time."""

    def __init__(self, exchange: Exchange, api_key: str | None = None) -> None:
        self.answer = Answer(
            exchange,
            error_class=exchange.error_class,
            error_message=exchange.error_message,
        )
        self._api_key = api_key
        self._documents = _documents(exchange.bodies)
        self._content: list[bytes] = []
        self._reads: list[int] = []  # of the content
        self._counts = array("i")
        self._counted_tokens: int | None = 0  # None: an event came without running usage

    def advance(self, events: int | None = None) -> bool:
        """Decode the next `events` events, or all; True: `answer` is whole."""
        problem, done = None, 0
        try:
            for read, data in itertools.islice(self._documents, events):
                if data == sse.DONE:
                    break
                chunk = _decode_chunk(data.decode())  # msgspec lets broken UTF-8 in keys pass
                if chunk.error is not None or chunk.object == "error":
                    problem = "stream_error", shown(_error(chunk), self._api_key)
                    break
                self._take(chunk, read)
                done += 1
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problem = "bad_json", f"{error}"
        if problem is None and done == events:
            return False
        self._finish(problem)
        return True

    def _take(self, chunk: _Chunk, read: int) -> None:
        if usage := chunk.usage:
            answer = self.answer
            answer.prompt_tokens = usage.prompt_tokens
            answer.output_tokens = usage.completion_tokens
            if usage.prompt_tokens_details is not None:
                answer.cached_tokens = usage.prompt_tokens_details.cached_tokens
        for choice in chunk.choices or ():
            if text := _text(choice):
                self._content.append(text.encode(errors="surrogatepass"))
                self._reads.append(read)
                if self._counted_tokens is not None:
                    self._count(usage.completion_tokens if usage else None)
            if choice.finish_reason is not None:
                self.answer.finish_reason = choice.finish_reason

    def _count(self, told: int | None) -> None:
        """One more event, up to which usage tells `told` tokens."""
        if told is not None:
            self._counts.append(told - self._counted_tokens)
        self._counted_tokens = told

    def _finish(self, problem: tuple[str, str] | None) -> None:
        answer, reads = self.answer, self._reads
        if reads:
            answer.stamps_ns = array("q", map(answer.exchange.stamps.__getitem__, reads))
            answer.sizes = array("i", map(len, self._content))
            answer.merged = _merged(reads)
            text = b"".join(self._content)
            answer.text_digest = hashlib.sha256(text).hexdigest()[:16]
            answer.looped_share = looped_share(text)
        if len(reads) > 1 and self._counted_tokens is not None:
            answer.counts = self._counts
        if answer.exchange.cancelled:
            answer.status = "cancelled"
        elif answer.error_class is None:
            answer.error_class, answer.error_message = problem or _missing(answer)
        if answer.error_class is not None:
            answer.status = "failed"


def _merged(reads: list[int]) -> bytearray:
    """For each event whether another came with its read."""
    merged = bytearray(len(reads))
    if len(set(reads)) < len(reads):
        for i in range(1, len(reads)):
            if reads[i] == reads[i - 1]:
                merged[i - 1] = merged[i] = True
    return merged


def _missing(answer: Answer) -> tuple[str | None, str | None]:
    if answer.finish_reason is None:
        return "truncated", "the stream ended without a finish reason"
    if not answer.sizes:
        return "empty", "the stream ended without content"
    if answer.output_tokens is None:
        return "no_usage", "the stream ended without usage although include_usage was set"
    return None, None


def _documents(bodies: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """The JSON documents of a body, each with the number of the read that completed it."""
    if next(filter(bytes.strip, bodies), b"").lstrip()[:1] == b"{":  # a server that does not stream
        return iter([(len(bodies) - 1, b"".join(bodies))])
    return sse.events(bodies)


def _text(choice: _Choice) -> str:
    message = choice.delta or choice.message
    if message is None:
        return choice.text or ""
    text = (message.reasoning_content or message.reasoning or "") + (message.content or "")
    for call in message.tool_calls or ():
        if call.function is not None:
            text += (call.function.name or "") + (call.function.arguments or "")
    return text


def _error(chunk: _Chunk) -> str:
    """What an error object says."""
    error = {"message": chunk.message} if chunk.error is None else chunk.error
    if isinstance(error, dict) and error.get("message"):
        return str(error["message"])
    return str(error)


# ---------------------------------------------------------------------- rows


def request_row(answer: Answer, window_ns: tuple[int, int] | None) -> dict[str, Any]:
    """The row of `records.REQUESTS`, without the columns that say where it belongs."""
    exchange = answer.exchange
    tokens = answer.event_tokens()
    merged_reads = {s for s, merged in zip(answer.stamps_ns, answer.merged, strict=True) if merged}
    return {
        "request_id": exchange.request_id,
        "client": exchange.client,
        "prompt_id": exchange.prompt_id,
        "scheduled_s": None if exchange.due_ns is None else exchange.due_ns / 1e9,
        "sent_s": exchange.sent_ns / 1e9,
        "first_token_s": answer.stamps_ns[0] / 1e9 if answer.stamps_ns else None,
        "last_token_s": answer.stamps_ns[-1] / 1e9 if answer.stamps_ns else None,
        "end_s": exchange.end_ns / 1e9,
        "in_window": window_ns is not None and window_ns[0] <= exchange.start_ns < window_ns[1],
        "status": answer.status,
        "error_class": answer.error_class,
        "error_message": answer.error_message,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.prompt_tokens,
        "output_tokens": answer.output_tokens,
        "cached_tokens": answer.cached_tokens,
        "chunks": len(answer.sizes),
        "first_chunk_tokens": max(1, round(tokens[0])) if tokens else None,
        "merged_reads": len(merged_reads),
        "resent": exchange.resent,
        "text_digest": answer.text_digest,
        "looped_share": answer.looped_share,
    }


def chunk_row(answer: Answer) -> dict[str, Any]:
    """The row of `records.CHUNKS`."""
    sent_ns = answer.exchange.sent_ns
    return {
        "request_id": answer.exchange.request_id,
        "offset_us": [(stamp - sent_ns) // 1000 for stamp in answer.stamps_ns],
        "bytes": list(answer.sizes),
        "tokens": None if answer.counts is None else list(answer.counts),
        "merged": [bool(m) for m in answer.merged],
    }
