"""A server's log without the values that a campaign takes from the shell."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import BinaryIO


def copy(source: BinaryIO, log: BinaryIO, hide: Callable[[str], str]) -> threading.Thread:
    """Copy what a server prints into its log, line by line, in a thread of its own.

    It ends when nothing holds the other end of `source` any more; both files are closed then.
    """

    def read_all() -> None:
        rest = b""
        with source, log:
            while chunk := os.read(source.fileno(), 65_536):
                rest += chunk
                end = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
                log.write(_hidden(rest[:end], hide))
                log.flush()
                rest = rest[end:]
            log.write(_hidden(rest, hide))

    thread = threading.Thread(target=read_all, daemon=True)
    thread.start()
    return thread


def _hidden(text: bytes, hide: Callable[[str], str]) -> bytes:
    return os.fsencode(hide(os.fsdecode(text)))
