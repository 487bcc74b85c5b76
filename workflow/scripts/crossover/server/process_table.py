"""The processes of this host: whose child one is, what listens, how it is told to a person."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil


def descendants(pid: int, *, recursive: bool = True) -> list[psutil.Process]:
    """All processes below `pid` that still run."""
    try:
        return psutil.Process(pid).children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def kill_all(pids: Iterable[int], wait_s: float = 5.0) -> list[int]:
    """KILL processes and wait; returns those that are still there after `wait_s`."""
    processes = []
    for pid in pids:
        try:
            process = psutil.Process(pid)
            process.kill()
            processes.append(process)
        except psutil.NoSuchProcess:
            continue
    _, left = psutil.wait_procs(processes, timeout=wait_s)
    return [p.pid for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def listener(port: int) -> psutil.Process | None:
    """The process that listens on a TCP port of this host; None: none, or not visible."""
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
            return psutil.Process(connection.pid) if connection.pid else None
    return None


def describe(pid: int) -> str:
    """A process for a message: pid, the beginning of its command line, when it started."""
    try:
        process = psutil.Process(pid)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(process.create_time()))
        return f"pid {pid} ({' '.join(process.cmdline())[:80]}, since {since})"
    except psutil.Error:
        return f"pid {pid}"
