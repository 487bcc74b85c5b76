"""A session's files: the handle of a live server, and the append-only record of its life."""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossover.files import write_json
from crossover.server import processes

SILENT_S = 120.0
"""A session of another host that has written nothing for so long is taken for dead: longer than
a sample may take, a cache of a network file system hold back, and clocks differ."""


def new_id() -> str:
    """A session id that sorts by time: UTC second and eight random hex digits."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class Handle:
    """A server that is up (or coming up). The file is there only while the server lives."""

    session_id: str
    variant: str
    trial: int
    base_url: str
    port: int | None
    pid: int | None
    supervisor: str
    owner: str
    started_at: float
    started_s: float
    record: str
    samples: str
    server_log: str

    def write(self, path: str | Path) -> None:
        """Write the handle's file at once, whole."""
        write_json(asdict(self), path)

    @classmethod
    def read(cls, path: str | Path) -> Handle | None:
        """The handle in a file (health.json is one, with more in it); None: no such file."""
        try:
            values = json.loads(Path(path).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})

    def is_stale(self) -> bool:
        """Whether the server has ended, or ends, without anybody to take the handle away.

        Of another host that is known from the session's files: its record, and its samples, which
        a live supervisor writes all the time.
        """
        if processes.is_here(self.supervisor):
            return not all(map(processes.is_alive, (self.supervisor, self.owner)))
        if "stopped_at" in read(self.record):
            return True
        last_sign_at = max(map(_written_at, (self.record, self.samples)))
        return time.time() - last_sign_at > SILENT_S


def _written_at(path: str | Path) -> float:
    """When a file was last written, Unix seconds, as its server knows it; 0: there is none."""
    try:
        with open(path) as file:  # opening asks the server; stat may answer from a cache
            return os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return 0.0


def append(record: str | Path, event: str, **facts: Any) -> None:
    """Add one event to a session's record, as a line of its own.

    Raises:
        OSError: the disk is full; what was written of the line spoils no other.
    """
    path = Path(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"event": event, **facts}, allow_nan=False) + "\n"
    with open(path, "a+b") as out:
        out.seek(max(0, out.tell() - 1))
        is_torn = out.read(1) not in (b"", b"\n")
        out.write((b"\n" if is_torn else b"") + line.encode())
        out.flush()
        os.fsync(out.fileno())


def read(record: str | Path) -> dict[str, Any]:
    """All facts of a session's record, later events over earlier ones.

    A line that a power cut or a full disk left incomplete is ignored; without a record there
    are none.
    """
    facts: dict[str, Any] = {}
    try:
        lines = Path(record).read_text().splitlines()
    except FileNotFoundError:
        return facts
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        event.pop("event")
        facts.update(event)
    return facts


def samples(path: str | Path, start_s: float, end_s: float) -> list[dict[str, Any]]:
    """The supervisor's samples between two moments of the monotonic clock."""
    try:
        lines = Path(path).read_text().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            sample = json.loads(line)
        except ValueError:
            continue
        if start_s <= sample["t"] <= end_s:
            found.append(sample)
    return found


def log_tail(path: str | Path, lines: int = 30) -> str:
    """The last lines of a server log, without control characters."""
    try:
        with open(path, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 32_768))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return "(no log)"
    tail = text.splitlines()[-lines:]
    return "\n".join("".join(c for c in line if c.isprintable() or c == "\t") for line in tail)
