"""A real HTTP server whose answers are scripted byte by byte."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

RESET = object()
"""End the connection with a TCP reset."""

CLOSE = object()
"""Close the connection in good order."""

CLOSE_NOTIFY = object()
"""End TLS in good order, and wait for the client to do so too."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD_CLOSE = HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
LAST_CHUNK = b"0\r\n\r\n"

Script = Callable[[int, dict[str, Any]], Iterable[Any]]


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any, newline: bytes = b"\n") -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return b"data: " + text.encode() + 2 * newline


def content(text: str | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more}


def usage(output_tokens: int, prompt_tokens: int = 7, cached: int | None = None) -> dict[str, Any]:
    details = None if cached is None else {"cached_tokens": cached}
    return {
        "choices": [],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": output_tokens,
            "prompt_tokens_details": details,
        },
    }


def answer(
    *,
    events: int = 8,
    tokens_per_event: int = 1,
    wait_s: float = 0.0,
    gap_s: float = 0.0,
    newline: bytes = b"\n",
    done: bool = True,
    running_usage: bool = False,
    head: bytes = HEAD,
) -> Iterator[Any]:
    """A good streamed answer of `events` × `tokens_per_event` tokens."""
    yield head + chunked(event(content(None), newline))
    yield wait_s
    for i in range(events):
        more = {}
        if running_usage:
            more = {"usage": usage((i + 1) * tokens_per_event)["usage"]}
        yield chunked(event(content(" tok" * tokens_per_event, **more), newline))
        yield gap_s
    tail = event(content(None, "length"), newline)
    tail += event(usage(events * tokens_per_event), newline)
    yield chunked(tail + (event("[DONE]", newline) if done else b""))
    yield LAST_CHUNK
    if head is HEAD_CLOSE:
        yield CLOSE


def status(code: int, body: bytes = b"", more: bytes = b"") -> Iterator[Any]:
    yield b"HTTP/1.1 %d Scripted\r\n%bContent-Length: %d\r\n\r\n%b" % (code, more, len(body), body)


class SseServer:
    """Answers request i (from 0, in order of arrival) with what `script(i, body)` yields.

    bytes are sent, numbers are seconds to wait, RESET and CLOSE end the connection. With `tls`
    the server speaks TLS, and CLOSE comes without close_notify; CLOSE_NOTIFY sends it first.
    """

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.tls = tls
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[bytes] = []
        self.connections = 0
        self.in_flight = self.most_in_flight = 0
        self.log: list[tuple[int, int]] = []  # (monotonic ns, bytes) of every send
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> SseServer:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        scheme = "https" if self.tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the port and every connection."""
        with self._lock:
            self._stopped = True
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            sockets = list(self._sockets)
        for sock in sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self.stop = lambda: None

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.connections += 1
                self._sockets.append(sock)
            self._start(self._converse, sock)

    def _converse(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock, self._secured(sock) as sock:
            while request := self._receive(sock):
                if not self._answer(sock, *request):
                    return

    def _secured(self, sock: socket.socket) -> socket.socket:
        return self.tls.wrap_socket(sock, server_side=True) if self.tls else sock

    def _receive(self, sock: socket.socket) -> tuple[bytes, bytes] | None:
        received = b""
        while b"\r\n\r\n" not in received:
            if not (more := sock.recv(65536)):
                return None
            received += more
        head, _, body = received.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        while len(body) < length:
            if not (more := sock.recv(65536)):
                return None
            body += more
        return head, body

    def _answer(self, sock: socket.socket, head: bytes, body: bytes) -> bool:
        """Play the script of one request; False: the connection is over."""
        with self._lock:
            number = len(self.bodies)
            self.bodies.append(json.loads(body))
            self.heads.append(head)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            for step in self.script(number, self.bodies[number]):
                if step is RESET:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return False
                if step is CLOSE_NOTIFY:
                    sock.unwrap()
                    return False
                if step is CLOSE:
                    return False
                if isinstance(step, bytes):
                    sock.sendall(step)
                elif step:
                    time.sleep(step)
        finally:
            with self._lock:
                self.in_flight -= 1
        return True
