"""Processes named so that a reused pid is never mistaken for the process that was meant."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

SESSION_MARK = "CROSSOVER_SESSION"
SUPERVISOR_MARK = "CROSSOVER_SUPERVISOR"
"""Environment variables that every process of a server inherits: the session's id, and the
identity of the supervisor with which it must end."""

OWNER = "CROSSOVER_OWNER"
"""Environment variable: identity of the Snakemake process that owns the run's servers."""

SUPERVISOR_GRACE_S = 600.0
"""How long a supervisor may take to stop; it keeps the variant's own, shorter, grace time."""


def start_ticks(pid: int) -> int | None:
    """Start time of `pid` in clock ticks since boot; None when it is gone or a zombie.

    A zombie whose other threads still end is not gone: it has its locks until the last one ends.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    return None if state == b"X" or (state == b"Z" and threads <= 1) else started


def identity(pid: int | None = None) -> str:
    """`host:pid:start ticks` of a process, by default of this one."""
    pid = os.getpid() if pid is None else pid
    return f"{socket.gethostname()}:{pid}:{start_ticks(pid)}"


def owner() -> str:
    """Identity of the Snakemake process that owns this run's servers."""
    return os.environ[OWNER]


def pid_of(who: str) -> int:
    """The pid in an identity."""
    return int(who.rsplit(":", 2)[1])


def host_of(who: str) -> str:
    """The host in an identity."""
    return who.rsplit(":", 2)[0]


def is_here(who: str) -> bool:
    """Whether an identity is of this host."""
    return host_of(who) == socket.gethostname()


def is_alive(who: str) -> bool:
    """Whether the very process named `who` runs. Of another host it is assumed."""
    _, pid, ticks = who.rsplit(":", 2)
    return not is_here(who) or str(start_ticks(int(pid))) == ticks


def stop(who: str, grace_s: float) -> bool:
    """TERM, then KILL after `grace_s`. False when the process was gone already."""
    if not is_alive(who):
        return False
    for sig, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid_of(who), sig)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if not is_alive(who):
                return True
            time.sleep(0.02)
    return True


def of_session(session_id: str) -> list[int]:
    """Pids of all processes that carry the session's mark, however they were daemonised."""
    return [pid for pid, mark in _marked(SESSION_MARK) if mark == session_id]


def orphans() -> list[int]:
    """Pids of processes of servers whose supervisor is gone: nobody else will end them."""
    return [pid for pid, mark in _marked(SUPERVISOR_MARK) if not is_alive(mark)]


def _marked(name: str) -> Iterator[tuple[int, str]]:
    prefix = f"{name}=".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or another user's
            continue
        for variable in variables:
            if variable.startswith(prefix) and start_ticks(int(folder.name)) is not None:
                yield int(folder.name), variable.removeprefix(prefix).decode()


def is_port_open(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0
