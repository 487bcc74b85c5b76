"""What the reads of a request mean: chat or completions chunks, usage, errors.

An answer succeeded if it brought content (or reasoning, or a tool call), a finish reason and
usage. Everything else is a failure with a class.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from crossover.load import sse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from crossover.load.client import Exchange


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


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
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
    """A decoded request. The lists have one entry for each event with content.

    counts: tokens of each event by the server's running usage; None: the server sends none.
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
    stamps_ns: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    counts: list[int] | None = None
    merged: list[bool] = field(default_factory=list)
    text_digest: str | None = None

    @property
    def one_token_an_event(self) -> bool:
        """Usage leaves at most one token (a silent end of sequence) without an event."""
        return self.output_tokens is not None and self.output_tokens - len(self.sizes) in (0, 1)

    @property
    def has_event_counts(self) -> bool:
        """Each event's tokens are known, not spread."""
        return self.counts is not None or self.one_token_an_event

    def event_tokens(self) -> list[float]:
        """Tokens of each event; they add up to `output_tokens` (METHOD §2.4).

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


def decode(exchange: Exchange) -> Answer:
    """What the request `exchange` brought."""
    answer = Answer(exchange, error_class=exchange.error_class)
    answer.error_message = exchange.error_message
    problem = None
    try:
        _read_chunks(answer)
    except msgspec.MsgspecError as error:
        problem = ("bad_json", f"{error}")
    if exchange.cancelled:
        answer.status = "cancelled"
    elif answer.error_class is None:
        answer.error_class, answer.error_message = problem or _missing(answer)
    if answer.error_class is not None:
        answer.status = "failed"
    return answer


def _missing(answer: Answer) -> tuple[str | None, str | None]:
    if answer.finish_reason is None:
        return "truncated", "the stream ended without a finish reason"
    if not answer.sizes:
        return "empty", "the stream ended without content"
    if answer.output_tokens is None:
        return "no_usage", "the stream ended without usage although include_usage was set"
    return None, None


def _read_chunks(answer: Answer) -> None:
    """Fill `answer` from its reads."""
    stamps = answer.exchange.stamps
    texts: list[str] = []
    read_of_event: list[int] = []
    running: list[int | None] = []  # output tokens told up to each event
    try:
        for read, data in _documents(answer.exchange.bodies):
            chunk = _decode_chunk(data)
            if (error := _error(chunk)) is not None:
                if answer.error_class is None and not answer.exchange.cancelled:
                    answer.error_class, answer.error_message = "stream_error", error[:200]
                return
            if usage := chunk.usage:
                answer.prompt_tokens = usage.prompt_tokens
                answer.output_tokens = usage.completion_tokens
                if usage.prompt_tokens_details is not None:
                    answer.cached_tokens = usage.prompt_tokens_details.cached_tokens
            for choice in chunk.choices or ():
                if text := _text(choice):
                    texts.append(text)
                    read_of_event.append(read)
                    running.append(usage.completion_tokens if usage else None)
                if choice.finish_reason is not None:
                    answer.finish_reason = choice.finish_reason
    finally:
        encoded = [text.encode(errors="surrogatepass") for text in texts]
        answer.sizes = [len(text) for text in encoded]
        answer.stamps_ns = [stamps[read] for read in read_of_event]
        answer.merged = list(_shared(read_of_event))
        if encoded:
            answer.text_digest = hashlib.sha256(b"".join(encoded)).hexdigest()[:16]
            if len(encoded) > 1 and None not in running:
                answer.counts = [b - a for a, b in zip([0, *running], running, strict=False)]


def _documents(bodies: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """The JSON documents of a body, each with the number of the read that completed it."""
    if b"".join(bodies[:2]).lstrip()[:1] == b"{":  # a server that does not stream
        yield len(bodies) - 1, b"".join(bodies)
        return
    for read, data in sse.events(bodies):
        if data == sse.DONE:
            return
        yield read, data


def _text(choice: _Choice) -> str:
    message = choice.delta or choice.message
    if message is None:
        return choice.text or ""
    text = (message.reasoning_content or message.reasoning or "") + (message.content or "")
    for call in message.tool_calls or ():
        if call.function is not None:
            text += (call.function.name or "") + (call.function.arguments or "")
    return text


def _error(chunk: _Chunk) -> str | None:
    """What an error object says; None: the chunk is none."""
    error = chunk.error
    if error is None and chunk.object == "error":
        error = {"message": chunk.message}
    if error is None:
        return None
    if isinstance(error, dict) and error.get("message"):
        return str(error["message"])
    return str(error)


def _shared(reads: Sequence[int]) -> Iterator[bool]:
    """For each event: another one has the same read."""
    for i, read in enumerate(reads):
        yield read in (reads[i - 1] if i else None, reads[i + 1] if i + 1 < len(reads) else None)


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
        "sent_s": exchange.sent_ns / 1e9,
        "first_token_s": answer.stamps_ns[0] / 1e9 if answer.stamps_ns else None,
        "last_token_s": answer.stamps_ns[-1] / 1e9 if answer.stamps_ns else None,
        "end_s": exchange.end_ns / 1e9,
        "in_window": window_ns is not None and window_ns[0] <= exchange.sent_ns < window_ns[1],
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
    }


def chunk_row(answer: Answer) -> dict[str, Any]:
    """The row of `records.CHUNKS`."""
    sent_ns = answer.exchange.sent_ns
    return {
        "request_id": answer.exchange.request_id,
        "offset_us": [(stamp - sent_ns) // 1000 for stamp in answer.stamps_ns],
        "bytes": answer.sizes,
        "tokens": answer.counts,
        "merged": answer.merged,
    }
