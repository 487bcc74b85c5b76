"""A stand-in for nvidia-ml-py where there is no GPU: the driver's answers come from a JSON file.

STAND_IN_NVML names it: a list of {"used": bytes, "pids": [pid, …], "name": …}, one for each GPU;
with "mw", "mj", "sm_mhz" and "reasons" for one that tells its power, energy, clocks and what holds
them down. What processes hold by `device_memory` comes on top.
"""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import device_memory


class NVMLError(Exception):
    """As the driver's."""


NVML_CLOCK_SM = 1


def nvmlInit():
    if "STAND_IN_NVML" not in os.environ:
        raise NVMLError("Driver Not Loaded")


def nvmlShutdown():
    pass


def nvmlDeviceGetHandleByIndex(index):
    gpus = json.loads(Path(os.environ["STAND_IN_NVML"]).read_text())
    if index >= len(gpus):
        raise NVMLError("Invalid Argument")
    gpu, held = gpus[index], device_memory.held(index)
    return {**gpu, "used": gpu["used"] + sum(held.values()), "pids": [*gpu["pids"], *held]}


def nvmlDeviceGetName(gpu):
    return gpu.get("name", "Stand-in")


def nvmlSystemGetDriverVersion():
    return "580.0"


def nvmlDeviceGetMemoryInfo(gpu):
    return SimpleNamespace(used=gpu["used"])


def nvmlDeviceGetComputeRunningProcesses(gpu):
    return [SimpleNamespace(pid=pid) for pid in gpu["pids"]]


def nvmlDeviceGetPowerUsage(gpu):
    return _told(gpu, "mw")


def nvmlDeviceGetTotalEnergyConsumption(gpu):
    return _told(gpu, "mj")


def nvmlDeviceGetClockInfo(gpu, clock):
    assert clock == NVML_CLOCK_SM
    return _told(gpu, "sm_mhz")


def nvmlDeviceGetCurrentClocksThrottleReasons(gpu):
    return _told(gpu, "reasons")


def _told(gpu, name):
    if name not in gpu:
        raise NVMLError("Not Supported")
    return gpu[name]
