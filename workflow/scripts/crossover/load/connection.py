"""One connection to the server: opened, written to and read without ever waiting."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

import httptools

from crossover.load import stamps as kernel_stamps
from crossover.load.response import Response
from crossover.load.tls import Tls

if TYPE_CHECKING:
    from crossover.load.exchange import Exchange
    from crossover.load.stamps import Stamps

_TIMESPEC = struct.Struct("@qq")
_READ_BYTES = 16384
_READS_AT_ONCE = 16
_ANCILLARY_BYTES = 40


class Place(NamedTuple):
    """Where a connection goes. tls_host: whom the certificate must name; None: no TLS."""

    family: int
    peer: tuple
    tls_host: str | None


class Failure(Exception):
    """A request failed, as `error_class` says; its connection is of no more use."""

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.message = message


class Unreachable(Failure):
    """There was no connection. `refused`: nobody listens."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__("connect_refused" if refused else "connect_failed", message)
        self.refused = refused


class Untrusted(Failure):
    """The server's certificate was refused."""

    def __init__(self, message: str) -> None:
        super().__init__("tls_untrusted", message)


class Dropped(Failure):
    """The connection ended before a byte of answer: the request may be sent again."""

    def __init__(self) -> None:
        super().__init__("connection_dropped", "the connection was closed without an answer")


class Connection:
    """A connection that is being opened, or carries one request at a time.

    ready: requests can be sent.
    opened_ns: when it began to open; `last_byte_ns`: when it was last written to or read from.
    unsent: what the socket has not taken yet.
    """

    __slots__ = (
        "answering",
        "epoll",
        "exchange",
        "last_byte_ns",
        "opened_ns",
        "ready",
        "response",
        "sock",
        "stamps",
        "tls",
        "unsent",
        "watched",
    )

    def __init__(self, place: Place, epoll: select.epoll, stamps: Stamps) -> None:
        """Begin to connect.

        Raises:
            Unreachable: it cannot even begin.
        """
        self.opened_ns = self.last_byte_ns = time.monotonic_ns()
        self.epoll = epoll
        self.stamps = stamps
        self.response = Response()
        self.exchange: Exchange | None = None
        self.unsent = memoryview(b"")
        self.tls = Tls(place.tls_host) if place.tls_host else None
        self.ready = self.answering = False
        self.sock = socket.socket(place.family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kernel_stamps.ask_kernel(self.sock)
        code = self.sock.connect_ex(place.peer)
        if code not in (0, errno.EINPROGRESS):
            self.close()
            raise _unreachable(code)
        self.watched = select.EPOLLOUT
        epoll.register(self.sock, self.watched)

    def open(self) -> bool:
        """Go on opening; True: it is ready.

        Raises:
            Unreachable: the server does not take it.
            Untrusted: it does not prove to be the one that was asked for.
            Failure: it speaks no TLS, or ends the handshake.
        """
        if code := self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise _unreachable(code)
        self.ready = self.tls is None or self._shake_hands(self.tls)
        self.flush()
        return self.ready

    def send(self, exchange: Exchange, payload: bytes) -> None:
        """Send a request, whose answer fills `exchange`.

        Raises:
            Dropped: the server has closed the connection.
        """
        self.exchange = exchange
        self.answering = False
        self.response.expect()
        self._queue(self.tls.encrypted(payload) if self.tls else payload)
        self.last_byte_ns = time.monotonic_ns()
        if not exchange.sent_ns:  # a request that is sent again has been waiting all along
            exchange.sent_ns = self.last_byte_ns
        self.flush()

    def flush(self) -> None:
        """Send on.

        Raises:
            Dropped: the server has closed the connection.
        """
        if self.unsent:
            try:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
            except BlockingIOError:
                pass
            except OSError:
                raise Dropped from None
        self._watch(select.EPOLLIN | select.EPOLLOUT if self.unsent else select.EPOLLIN)

    def read(self) -> bool:
        """Take in what has arrived, or 256 kB of it; True: the answer is whole.

        Raises:
            Dropped: the connection ended before a byte of an answer, or between two.
            Failure: it ended in mid-answer, or brought something else.
        """
        stamps, response, exchange, tls = self.stamps, self.response, self.exchange, self.tls
        for _ in range(_READS_AT_ONCE):  # one that sends without end must not keep all others out
            try:
                data, ancillary, _, _ = self.sock.recvmsg(_READ_BYTES, _ANCILLARY_BYTES)
            except BlockingIOError:
                return False
            except OSError as error:
                return self._lost(error.strerror)
            if not data:
                return self._lost(None)
            stamps.reads += 1
            if ancillary:
                seconds, ns = _TIMESPEC.unpack(ancillary[0][2])
                stamp = seconds * 1_000_000_000 + ns - stamps.offset_ns
            else:
                stamps.unstamped += 1
                stamp = time.monotonic_ns()
            self.last_byte_ns = stamp
            size = len(data)
            if tls is not None:
                data = self._decrypt(tls, data)
                if not data and not tls.closed:  # less than a record, or a session ticket
                    continue
            if exchange is None:
                raise Failure("bad_http", f"nobody asked for {data[:100]!r}")
            if data:
                self.answering = True
            try:
                response.feed(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                reason = error.__context__ or error  # what a callback of `response` raised
                raise Failure("bad_http", f"{reason}: {data[:100]!r}") from None
            if pieces := response.pieces:
                stamps.events += len(pieces)
                exchange.stamps.append(stamp)
                exchange.bodies.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
                pieces.clear()
            if response.ended:
                self.exchange = None
                return True
            if tls is not None and tls.closed:
                return self._lost(None)
            if size < _READ_BYTES:
                break
        return False

    @property
    def reusable(self) -> bool:
        """Another request can be sent after the answer that is whole."""
        return self.response.ended and self.response.keep_alive and not self.unsent

    def close(self) -> None:
        """Close the socket, whatever is under way."""
        self.sock.close()
        self.response.release()

    def _watch(self, events: int) -> None:
        if events != self.watched:
            self.watched = events
            self.epoll.modify(self.sock, events)

    def _queue(self, data: bytes) -> None:
        self.unsent = memoryview(bytes(self.unsent) + data if self.unsent else data)

    def _shake_hands(self, tls: Tls) -> bool:
        """Go on with the handshake; True: it is done, but for what is still to be sent."""
        try:
            received = self.sock.recv(_READ_BYTES)
        except BlockingIOError:
            received = b""
        except OSError as error:
            raise Unreachable(f"{error.strerror} during the TLS handshake") from None
        else:
            if not received:
                raise Unreachable("the connection was closed during the TLS handshake")
        try:
            done = tls.shake_hands(received)
        except ssl.SSLCertVerificationError as error:
            raise Untrusted(error.verify_message) from None
        except ssl.SSLError as error:
            raise Failure("tls_failed", f"TLS handshake: {error.reason or error}") from None
        self._queue(tls.encrypted())
        return done

    def _decrypt(self, tls: Tls, data: bytes) -> bytes:
        """The content of what has arrived; what TLS has to answer is sent."""
        try:
            plain = tls.decrypt(data)
        except ssl.SSLError as error:
            raise Failure("tls_failed", f"{error.reason or error}") from None
        if reply := tls.encrypted():
            self._queue(reply)
            self.flush()
        return plain

    def _lost(self, error: str | None) -> bool:
        """The connection ended, in good order where `error` is None; True: so did the answer."""
        if self.exchange is None or not self.answering:
            raise Dropped
        if error is not None:
            raise Failure("reset", error)
        status = self.response.status
        complete = self.response.ends_with_connection and (self.tls is None or self.tls.closed)
        if status == 0 or (status == 200 and not complete):
            raise Failure("truncated", "the connection was closed in mid-answer")
        self.exchange = None
        return True


def _unreachable(code: int) -> Unreachable:
    return Unreachable(os.strerror(code), refused=code == errno.ECONNREFUSED)
