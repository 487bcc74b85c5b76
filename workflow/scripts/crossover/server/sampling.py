"""What a server and its machine use, sampled by the session's supervisor."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import psutil

from crossover import gpu


class ServerCpu:
    """CPU seconds of a server's processes.

    Args:
        pid: of its first process; None: the server is not ours.
        core_processes: pattern of the command lines of those that compute; None: all alike.
    """

    def __init__(self, pid: int | None, core_processes: str | None) -> None:
        self.pid = pid
        self.core_processes = core_processes

    def read(self) -> dict[str, Any]:
        """Cumulative seconds; a key is None where it is not known.

        `server_cpu_s`: of all processes that run, and of their children that ended.
        `front_end_cpu_s`: of each process that does not compute, by "name pid".
        """
        if self.pid is None:
            return {"server_cpu_s": None, "front_end_cpu_s": None}
        total = 0.0
        front_end: dict[str, float] = {}
        try:
            for process in _tree(self.pid):
                try:
                    times = process.cpu_times()
                    line = " ".join(process.cmdline())
                except psutil.Error:
                    continue
                total += times.user + times.system + times.children_user + times.children_system
                if self.core_processes and not re.search(self.core_processes, line):
                    name = f"{process.name()} {process.pid}"
                    front_end[name] = times.user + times.system
        except psutil.NoSuchProcess:
            return {"server_cpu_s": None, "front_end_cpu_s": None}
        return {"server_cpu_s": total, "front_end_cpu_s": front_end or None}


def _tree(pid: int) -> Iterator[psutil.Process]:
    root = psutil.Process(pid)
    yield root
    yield from root.children(recursive=True)


class GpuLoad:
    """What a session's GPUs draw and hold, read in a `with` block."""

    def __init__(self, devices: Iterable[str]) -> None:
        self.gpus = gpu.of(devices)

    def __enter__(self) -> GpuLoad:
        self._closing = contextlib.ExitStack()
        self._driver = None
        if self.gpus:
            with contextlib.suppress(gpu.NvmlUnavailable):
                self._driver = self._closing.enter_context(gpu.nvml())
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(gpu.NvmlUnavailable):
            self._closing.close()

    def read(self) -> dict[str, float]:
        """See `gpu.load`; empty without a GPU, and where the driver does not tell all of it."""
        if self._driver is None:
            return {}
        try:
            return gpu.load(self._driver, self.gpus)
        except self._driver.NVMLError:
            return {}


def machine_cpu() -> Mapping[str, float]:
    """Busy CPU seconds of the whole machine since boot, and how many cores it has."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # guest time is contained in user time
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return {"machine_busy_s": sum(times) - guest - idle, "machine_cores": os.cpu_count()}
