"""Memory of a session's GPUs: what was in use before its start must be all that is after its end.

A driver frees memory up to seconds after its process is gone, and a worker that was overlooked
never does. Where there is no GPU, or no NVML, nothing is known and nothing is checked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from crossover import gpu
from crossover.server import process_table, processes

TOLERANCE_BYTES = 128 * 2**20
"""What other processes may have taken meanwhile; the least that a CUDA context holds is more."""

NOTED_BYTES = 2**30
"""In use before the start, it is worth a notice: the server may not find room."""

_POLL_S = 0.1


def used_bytes(devices: Iterable[str]) -> dict[str, int] | None:
    """Memory in use on each GPU of a session; None: it has none, or they cannot be read."""
    gpus = gpu.of(devices)
    if not gpus:
        return None
    try:
        with gpu.nvml() as driver:
            return dict(zip(gpus, gpu.memory_used_bytes(driver, gpus), strict=True))
    except gpu.NvmlUnavailable:
        return None


def wait_until_back(
    before: Mapping[str, int], timeout_s: float
) -> tuple[dict[str, int] | None, list[str]]:
    """Wait until no GPU holds more than before.

    Returns: memory in use on each GPU at last (None: they cannot be read any more), and a sentence
    on each that still holds more after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with gpu.nvml() as driver:
            while True:
                used = dict(zip(before, gpu.memory_used_bytes(driver, before), strict=True))
                held = {
                    device: extra
                    for device in before
                    if (extra := used[device] - before[device]) > TOLERANCE_BYTES
                }
                if not held or time.monotonic() > deadline:
                    return used, [_held(driver, device, extra) for device, extra in held.items()]
                time.sleep(_POLL_S)
    except gpu.NvmlUnavailable:
        return None, []


def in_use(devices: Iterable[str]) -> list[str]:
    """A sentence on each GPU that is far from empty although no server of ours is on it."""
    gpus = gpu.of(devices)
    if not gpus:
        return []
    try:
        with gpu.nvml() as driver:
            used = zip(gpus, gpu.memory_used_bytes(driver, gpus), strict=True)
            return [_held(driver, device, size) for device, size in used if size > NOTED_BYTES]
    except gpu.NvmlUnavailable:
        return []


def why_unchecked(devices: Iterable[str]) -> str:
    """Why nothing is known of the memory of a session's devices."""
    if not gpu.of(devices):
        return "no GPU among its devices"
    try:
        with gpu.nvml() as driver:
            gpu.memory_used_bytes(driver, gpu.of(devices))
    except gpu.NvmlUnavailable as error:
        return str(error)
    return "NVML did not answer at its start or stop"


def _held(driver: Any, device: str, size: int) -> str:
    """How much is held on a device and by whom, or where to look where that cannot be seen."""
    what = f"{device}: {size / 2**20:.0f} MiB of memory are held"
    by = [
        process_table.describe(pid)
        for pid in gpu.pids(driver, device)
        if processes.start_ticks(pid) is not None
    ]
    if by:
        return f"{what} by {', '.join(by)}"
    return (
        f"{what}, and no process of this machine holds them: another container or virtual machine "
        "does, or a dead process that the driver keeps; look at nvidia-smi on the host, end what "
        "it names there, or reset the GPU"
    )
