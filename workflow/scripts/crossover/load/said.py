"""What a server said when it did not answer as asked: a class, a line, and how long to wait."""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from crossover.load.response import Response

_MAX_CHARACTERS = 200
_MAX_PAUSE_S = 2.0
_MAX_PAGE_CHARACTERS = 10_000
"""Tags that do not end take time by the square."""

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


class Rejection(NamedTuple):
    """An answer other than 200. pause_s: how long its client asks for nothing more."""

    error_class: str
    message: str
    pause_s: float


def rejection(response: Response, body: bytes) -> Rejection:
    """What the answer `response` with `body` says.

    Retry-After is followed for up to 2 s: a level that the server refuses is a result, and not
    one to wait for.
    """
    said = _text(body)
    if response.status in _REDIRECTS:
        location = response.headers.get(b"location", b"nowhere").decode(errors="replace")
        message = f"status {response.status}, redirected to {location}; give the final address"
        return Rejection("redirect", message, 0.0)
    pause_s = 0.0
    if (header := response.headers.get(b"retry-after")) is not None:
        retry_after = header.decode(errors="replace")
        pause_s = min(_seconds(retry_after), _MAX_PAUSE_S)
        said = f"Retry-After {retry_after}, paused {pause_s:g} s: {said}"
    return Rejection(f"http_{response.status}", said, pause_s)


def shown(text: str, api_key: str | None) -> str:
    """`text` without the key, as a line of at most 200 characters."""
    if api_key:
        text = text.replace(api_key, "[API key]")
    return " ".join(text.split())[:_MAX_CHARACTERS]


def _text(body: bytes) -> str:
    """The message of an error object, the text of a page, or the body as it is."""
    text = body.decode(errors="replace").strip()
    if text.startswith("<"):
        return _MARKUP.sub(" ", text[:_MAX_PAGE_CHARACTERS])
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return text
    error = value.get("error", value) if isinstance(value, dict) else None
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail")
    return error if isinstance(error, str) else text


def _seconds(retry_after: str) -> float:
    """Seconds from now, as a number or a date; 0 where it is neither."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    try:
        return max(parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return 0.0
