"""One HTTP answer after another, as httptools finds them in what a connection brings."""

from __future__ import annotations

import httptools

_KEPT = frozenset((b"content-length", b"transfer-encoding", b"location", b"retry-after"))


class Response:
    """The answer that is arriving; httptools calls the `on_…` methods.

    status: 0 until its headers are here. Interim answers (100 Continue, 103 Early Hints) are
        passed over.
    pieces: what the last read brought of the body.
    ended: it is whole.
    """

    __slots__ = ("ended", "feed", "headers", "keep_alive", "on_body", "parser", "pieces", "status")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append
        self.parser = httptools.HttpResponseParser(self)
        self.feed = self.parser.feed_data
        self.expect()

    def expect(self) -> None:
        """The next answer is that of a new request."""
        self.ended = False
        self.keep_alive = True
        self.on_message_begin()

    @property
    def ends_with_connection(self) -> bool:
        """No header says where the body ends."""
        return not self.headers.keys() & {b"content-length", b"transfer-encoding"}

    def release(self) -> None:
        """Let go of the parser, which holds this object in turn."""
        del self.parser, self.feed

    def on_message_begin(self) -> None:
        """A status line begins (ValueError, which httptools wraps: nobody asked for it)."""
        if self.ended:
            raise ValueError("a second answer to one request")
        self.status = 0
        self.headers: dict[bytes, bytes] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or trailer is whole."""
        if (name := name.lower()) in _KEPT:
            self.headers[name] = value

    def on_headers_complete(self) -> None:
        """The body begins."""
        self.status = self.parser.get_status_code()
        self.keep_alive = self.parser.should_keep_alive()

    def on_message_complete(self) -> None:
        """An answer is whole, or an interim one is over."""
        if self.status < 200:
            self.status = 0
        else:
            self.ended = True
