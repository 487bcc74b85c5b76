"""Answers of a server that go wrong in known ways, each made from a seed and its number alone."""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from load import reference
from load.reference import Truth

TRANSCRIPTS = Path(__file__).parents[2] / "tests" / "data" / "sse"

KEEP, HALF_CLOSE, CLOSE, RESET, SILENCE = "keep", "half-close", "close", "reset", "silence"

_WORDS = (
    " the",
    "a",
    "é",
    " 漢字",
    "😀",
    "\n\n",
    '"',
    "\\",
    "data: ",
    "[DONE]",
    "\r\n",
    "\u2028",
    "{",
)
_TOKENS = (b"\n", b"\r\n", b"\n\n", b"\r", b"data:", b"data: [DONE]\n\n", b":", b"{", b"}", b'"')
_TOKENS += (b"null", b"-1", b"1e400", b"9" * 400, b"\xff", b"\x00", b"\\ud800", b'"error":"x",')
_TOKENS += (b"[" * 3000, b"0\r\n\r\n", b"ffffffffffffffffff\r\n", b"HTTP/1.1 200 OK\r\n\r\n")


class Stream(NamedTuple):
    """What the server does for one request.

    wire: what it sends, in `writes`.
    end: what it does then.
    truth: what a good answer of it holds; None: none can be good.
    fates: what may be said of it: "ok", or classes of failure; None: any.
    out_of_step: the connection may hold more than the answer.
    """

    kind: str
    wire: bytes
    writes: list[bytes]
    end: str
    truth: Truth | None
    fates: frozenset[str] | None
    out_of_step: bool = False


def stream(seed: str, number: int) -> Stream:
    """Stream `number` of a seed."""
    rng = random.Random(f"{seed} {number}")
    (kind,) = rng.choices(list(_KINDS), [weight for weight, _ in _KINDS.values()])
    wire, end, truth, fates = _KINDS[kind][1](rng)
    places = sorted(rng.randrange(len(wire) + 1) for _ in range(rng.choice((0, 1, 3, 20))))
    edges = [0, *places, len(wire)]
    writes = [wire[a:b] for a, b in itertools.pairwise(edges) if a < b]
    fates = None if fates is None else frozenset(fates)
    return Stream(kind, wire, writes, end, truth, fates, end == HALF_CLOSE)


# ---------------------------------------------------------------- good answers


def _chunk(rng: random.Random, style: str, text: str | None, finish: str | None) -> dict[str, Any]:
    if style == "completions":
        choice = {"index": 0, "text": text or "", "finish_reason": finish}
    elif style == "tools" and text:
        call = {"index": 0, "function": {"name": None, "arguments": text}}
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": finish}
    else:
        field = {"reasoning": "reasoning_content"}.get(style, "content")
        choice = {"index": 0, "delta": {field: text}, "finish_reason": finish}
    return {"id": f"chatcmpl-{rng.randrange(1 << 32):x}", "created": 1, "choices": [choice]}


def _event(rng: random.Random, value: Any, newline: bytes) -> bytes:
    """One event; some over several lines, some with fields that say nothing."""
    indent = rng.choice((None, None, None, 1))
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=indent)
    start = rng.choice((b"data: ", b"data: ", b"data:"))
    lines = [start + line.encode() for line in text.split("\n")]
    if rng.random() < 0.1:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice((b": ping", b"event: x", b"id: 7")))
    return newline.join(lines) + 2 * newline


def _streamed(rng: random.Random) -> tuple[list[bytes], Truth]:
    newline = rng.choice((b"\n", b"\n", b"\r\n"))
    style = rng.choice(("chat", "chat", "reasoning", "tools", "completions"))
    running, apart = rng.random() < 0.3, rng.random() < 0.7
    counts = [rng.choice((1, 1, 1, 2, 5)) for _ in range(rng.randint(1, 40))]
    texts = ["".join(rng.choices(_WORDS, k=n)) for n in counts]
    silent_end = rng.randint(0, 1)
    total = 0

    def usage() -> dict[str, Any]:
        return {"usage": {"prompt_tokens": 9, "completion_tokens": total}}

    events = [_event(rng, _chunk(rng, style, rng.choice((None, "")), None), newline)]
    for text, count in zip(texts, counts, strict=True):
        total += count
        more = usage() if running else {}
        events.append(_event(rng, _chunk(rng, style, text, None) | more, newline))
        if rng.random() < 0.05:
            events.append(_event(rng, _chunk(rng, style, "", None), newline))
    total += silent_end
    finish = _chunk(rng, style, None, rng.choice(("stop", "length")))
    if apart:
        events.append(_event(rng, finish, newline))
        events.append(_event(rng, {"choices": []} | usage(), newline))
    else:
        events.append(_event(rng, finish | usage(), newline))
    if rng.random() < 0.8:
        events.append(b"data: [DONE]" + 2 * newline)
    told = tuple(counts) if running and len(counts) > 1 else None
    return events, Truth(total, len(texts), told, reference.digest("".join(texts)))


def _not_streamed(rng: random.Random) -> tuple[list[bytes], Truth]:
    tokens = rng.randint(1, 60)
    text = "".join(rng.choices(_WORDS, k=tokens))
    value = {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": tokens},
    }
    blank = rng.choice(("", "", "\n\n \n"))
    body = (blank + json.dumps(value, indent=rng.choice((None, 2)))).encode()
    return [body], Truth(tokens, 1, None, reference.digest(text))


@functools.cache
def _transcripts() -> list[tuple[list[bytes], Truth]]:
    """Bodies that real servers sent, event by event."""
    bodies = []
    for path in sorted(TRANSCRIPTS.glob("*.sse")):
        raw = path.read_bytes()
        body = reference.body_of(raw) if raw.startswith(b"HTTP/") else raw
        bodies.append((re.findall(rb".+?\n\n", body, re.DOTALL), reference.truth_of(body)))
    return bodies


def _answer(rng: random.Random) -> tuple[list[bytes], Truth]:
    which = rng.random()
    if which < 0.2:
        return rng.choice(_transcripts())
    return _not_streamed(rng) if which < 0.25 else _streamed(rng)


# ---------------------------------------------------------------- HTTP around them

_TYPE = b"Content-Type: text/event-stream\r\n"


def _framed(rng: random.Random, events: list[bytes], how: str) -> tuple[bytes, str]:
    """HTTP around a body, and how the server ends it."""
    body = b"".join(events)
    interim = rng.choice((b"", b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
    head, end = interim + b"HTTP/1.1 200 OK\r\n" + _TYPE, KEEP
    if how == "end of connection":
        version = rng.choice((b"HTTP/1.1 ", b"HTTP/1.0 "))
        return interim + version + b"200 OK\r\n" + _TYPE + b"\r\n" + body, CLOSE
    if rng.random() < 0.2:
        head, end = head + b"Connection: close\r\n", CLOSE
    if how == "length":
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body, end
    if rng.random() < 0.3:  # chunks that know nothing of events
        places = sorted(rng.randrange(len(body) + 1) for _ in range(rng.randint(1, 30)))
        edges = [0, *places, len(body)]
        events = [body[a:b] for a, b in itertools.pairwise(edges)]
    extension = rng.choice((b"", b"", b"", b";a=b", b';note="c;d"'))
    size = rng.choice((b"%x", b"%X", b"00%x"))
    chunks = [size % len(e) + extension + b"\r\n" + e + b"\r\n" for e in events if e]
    trailer = rng.choice((b"", b"", b"", b"X-Took: 5\r\n"))
    whole = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)
    return whole + b"0\r\n" + trailer + b"\r\n", end


def _framing(rng: random.Random) -> str:
    return rng.choice(("chunks", "chunks", "chunks", "length", "end of connection"))


# ---------------------------------------------------------------- what can happen

_Made = tuple[bytes, str, Truth | None, tuple[str, ...] | None]


def _whole(rng: random.Random) -> _Made:
    events, truth = _answer(rng)
    return *_framed(rng, events, _framing(rng)), truth, ("ok",)


def _cut(rng: random.Random) -> tuple[bytes, bytes, str]:
    """The beginning of a good answer, the whole of it, and its framing."""
    how = _framing(rng)
    wire, _ = _framed(rng, _answer(rng)[0], how)
    return wire[: rng.randrange(len(wire))], wire, how


def _truncated(rng: random.Random) -> _Made:
    part, _, how = _cut(rng)
    if not part:
        return part, CLOSE, None, ("connection_dropped",)
    if how != "end of connection" or b"\r\n\r\n" not in part:
        return part, CLOSE, None, ("truncated",)
    body = reference.body_of(part)
    truth = None if body is None else reference.truth_of(body)
    return part, CLOSE, truth, ("truncated", "no_usage", "bad_json") if truth is None else ("ok",)


def _reset(rng: random.Random) -> _Made:
    part, _, _ = _cut(rng)
    return part, RESET, None, ("reset" if part else "connection_dropped",)


def _silent(rng: random.Random) -> _Made:
    part, _, _ = _cut(rng)
    return part, SILENCE, None, ("idle_timeout",)


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """A few bits, bytes or words changed, left out, doubled or put in."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(damaged) + 1)
        size = rng.choice((1, 1, 4, 50))
        what = rng.randrange(4)
        if what == 0 and at < len(damaged):
            damaged[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            del damaged[at : at + size]
        elif what == 2:
            damaged[at:at] = damaged[at : at + size]
        else:
            damaged[at:at] = rng.choice(_TOKENS)
    return bytes(damaged)


def _damaged_body(rng: random.Random) -> _Made:
    body = _damaged(rng, b"".join(_answer(rng)[0]))
    return *_framed(rng, [body], _framing(rng)), reference.truth_of(body), None


def _damaged_wire(rng: random.Random) -> _Made:
    events, truth = _answer(rng)
    wire, _ = _framed(rng, events, _framing(rng))
    wire = _damaged(rng, wire)
    body = reference.body_of(wire)
    if body is not None:
        truth = reference.truth_of(body)
    return wire, HALF_CLOSE, truth, None  # what h11 refuses is good only if nothing is lost


def _noise(rng: random.Random) -> _Made:
    words = (*_TOKENS, b"HTTP/1.1 ", b"200", b" OK\r\n", b"Content-Length: 5\r\n", _TYPE)
    wire = b"".join(rng.choice((*words, rng.randbytes(5))) for _ in range(rng.randint(1, 30)))
    return wire, HALF_CLOSE, None, None


def _error_event(rng: random.Random) -> _Made:
    events, _ = _streamed(rng)
    error = rng.choice(({"error": {"message": "boom"}}, {"error": "boom"}, {"object": "error"}))
    events.insert(rng.randrange(len(events)), b"data: " + json.dumps(error).encode() + b"\n\n")
    return *_framed(rng, events, _framing(rng)), None, ("stream_error",)


def _refused(rng: random.Random) -> _Made:
    status = rng.choice((301, 307, 400, 401, 404, 408, 422, 429, 500, 502, 503, 504))
    body = rng.choice(
        (
            b"",
            b"busy",
            b'{"error":{"message":"no such model"}}',
            b'{"detail":[{"msg":"bad"}]}',
            b"<html><style>p{}</style><h1>502\nBad Gateway</h1></html>",
            b"<" * 100_000,
            b"<script" * 10_000,
            b"[" * 100_000,
            rng.randbytes(300),
        )
    )
    wait = rng.choice((b"", b"Retry-After: 0\r\n", b"Retry-After: %b\r\n" % rng.choice(_WAITS)))
    head = b"HTTP/1.1 %d No\r\n%bContent-Length: %d\r\n\r\n" % (status, wait, len(body))
    end = rng.choice((KEEP, HALF_CLOSE, CLOSE))
    return head + body, end, None, ("redirect" if status < 400 else f"http_{status}",)


_WAITS = (b"soon", b"-1", b"1e9", b"0.5", b"Mon, 01 Jan 2001 00:00:00 GMT", b"Mon, 99", b"\xff")

_KINDS: dict[str, tuple[int, Callable[[random.Random], _Made]]] = {
    "whole": (30, _whole),
    "truncated": (15, _truncated),
    "reset": (5, _reset),
    "silent": (1, _silent),
    "damaged body": (18, _damaged_body),
    "damaged HTTP": (18, _damaged_wire),
    "noise": (4, _noise),
    "error in a 200": (4, _error_event),
    "refused": (5, _refused),
}
