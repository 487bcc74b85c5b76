"""What the NVIDIA driver says of this host's GPUs (NVML)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any


class NvmlUnavailable(Exception):
    """There is no driver, or it does not answer; the message says which."""


def index(device: str) -> int | None:
    """The driver's number of a device called `gpu<n>`; None: it is no GPU."""
    found = re.fullmatch(r"gpu(\d+)", device)
    return int(found[1]) if found else None


def of(devices: Iterable[str]) -> list[str]:
    """The GPUs among a session's devices, in the order of their numbers."""
    return sorted((d for d in devices if index(d) is not None), key=index)


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """The driver's library, opened.

    Raises:
        NvmlUnavailable: it cannot be opened, or a call inside the block failed.
    """
    try:
        import pynvml
    except ImportError:
        raise NvmlUnavailable("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
        try:
            yield pynvml
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML: {error}") from None


def memory_used_bytes(driver: Any, devices: Iterable[str]) -> list[int]:
    """Memory in use on each of `devices`, by whichever process of whichever container."""
    return [driver.nvmlDeviceGetMemoryInfo(_handle(driver, device)).used for device in devices]


def names(driver: Any, devices: Iterable[str]) -> list[str]:
    """What each of `devices` is, e.g. NVIDIA H200."""
    return [driver.nvmlDeviceGetName(_handle(driver, device)) for device in devices]


THROTTLED_BY_POWER = 0x04 | 0x80
"""Clocks held down by the software's power cap or the hardware's power brake (NVML's bits)."""

THROTTLED_BY_HEAT = 0x20 | 0x40
"""Clocks held down by the software's or the hardware's thermal slowdown (NVML's bits)."""


def load(driver: Any, devices: Iterable[str]) -> dict[str, float]:
    """What all of `devices` draw, hold and do at this moment.

    `gpu_power_w` and `gpu_memory_bytes` are sums over them, `gpu_energy_j` the sum since the
    driver was loaded, `gpu_sm_clock_mhz` the slowest one's; `gpu_power_throttled` and
    `gpu_heat_throttled` are 1 where the clocks of any are held down.
    """
    handles = [_handle(driver, device) for device in devices]
    reasons = [driver.nvmlDeviceGetCurrentClocksThrottleReasons(h) for h in handles]
    return {
        "gpu_power_w": sum(driver.nvmlDeviceGetPowerUsage(h) for h in handles) / 1000,
        "gpu_energy_j": sum(driver.nvmlDeviceGetTotalEnergyConsumption(h) for h in handles) / 1000,
        "gpu_memory_bytes": sum(driver.nvmlDeviceGetMemoryInfo(h).used for h in handles),
        "gpu_sm_clock_mhz": min(
            driver.nvmlDeviceGetClockInfo(h, driver.NVML_CLOCK_SM) for h in handles
        ),
        "gpu_power_throttled": float(any(r & THROTTLED_BY_POWER for r in reasons)),
        "gpu_heat_throttled": float(any(r & THROTTLED_BY_HEAT for r in reasons)),
    }


def pids(driver: Any, device: str) -> list[int]:
    """Processes that compute on a device, as the driver lists them.

    In a container there may be none, or their pids may be the host's.
    """
    listed = driver.nvmlDeviceGetComputeRunningProcesses(_handle(driver, device))
    return [process.pid for process in listed]


def _handle(driver: Any, device: str) -> Any:
    return driver.nvmlDeviceGetHandleByIndex(index(device))
