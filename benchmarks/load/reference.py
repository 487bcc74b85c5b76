"""What an answer holds, by other means than the load client's: h11, the whole body at once, json."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import h11


class Truth(NamedTuple):
    """What a good answer holds.

    events: those with content.
    counts: tokens of each event, where running usage tells them of every one.
    text_digest: as `decode.Answer` has it.
    """

    output_tokens: int
    events: int
    counts: tuple[int, ...] | None
    text_digest: str


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def body_of(wire: bytes) -> bytes | None:
    """The body of the 200 answer that `wire` is, with the end of the connection behind it.

    None: it is none, or not a whole one.
    """
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 30)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    body = b""
    try:
        connection.receive_data(wire)
        connection.receive_data(b"")
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response) and event.status_code != 200:
                return None
            if isinstance(event, h11.Data):
                body += event.data
            if isinstance(event, h11.EndOfMessage):
                return body
            if isinstance(event, h11.ConnectionClosed) or event in (h11.NEED_DATA, h11.PAUSED):
                return None
    except h11.RemoteProtocolError:
        return None


def truth_of(body: bytes) -> Truth | None:
    """What `body` holds; None: it is no good answer."""
    tokens = finish = None
    texts: list[str] = []
    told: list[int | None] = []
    try:
        for document in _documents(body):
            chunk = json.loads(document)
            if chunk.get("error") is not None or chunk.get("object") == "error":
                return None
            if usage := chunk.get("usage"):
                tokens = usage.get("completion_tokens")
            for choice in chunk.get("choices") or ():
                if text := _text(choice):
                    texts.append(text)
                    told.append(tokens if usage else None)
                if choice.get("finish_reason") is not None:
                    finish = choice["finish_reason"]
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
    if finish is None or not texts or not isinstance(tokens, int):
        return None
    counts = None
    if len(told) > 1 and None not in told:
        counts = tuple(b - a for a, b in zip([0, *told], told, strict=False))
    return Truth(tokens, len(texts), counts, digest("".join(texts)))


def _documents(body: bytes) -> list[bytes]:
    if body.strip().startswith(b"{"):
        return [body]
    found, data = [], []
    *lines, _ = body.replace(b"\r\n", b"\n").split(b"\n")
    for line in lines:
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif not line and data:
            if (document := b"\n".join(data)) == b"[DONE]":
                break
            found.append(document)
            data = []
    return found


def _text(choice: dict[str, Any]) -> str:
    message = choice.get("delta")
    if message is None:
        message = choice.get("message")
    if message is None:
        return choice.get("text") or ""
    text = message.get("reasoning_content") or message.get("reasoning") or ""
    text += message.get("content") or ""
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        text += (function.get("name") or "") + (function.get("arguments") or "")
    return text
