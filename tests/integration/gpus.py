"""GPUs of the stand-in for NVML, and servers over them of the stand-in for tensor parallelism."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
from integration.containers import STAND_INS
from integration.workflow_copy import Workflow
from stand_ins import device_memory

from crossover.files import write_json

IN_USE_BYTES = 500 * 2**20
"""What a GPU holds without a server of ours."""


def give_gpus(workflow: Workflow, count: int) -> None:
    """Let a workflow's host have GPUs."""
    driver_file = workflow.folder / "nvml.json"
    write_json([{"used": IN_USE_BYTES, "pids": []}] * count, driver_file)
    workflow.env |= {"STAND_IN_NVML": str(driver_file), "PYTHONPATH": str(STAND_INS)}


def server_over(devices: Sequence[str], *flags: str) -> dict[str, Any]:
    """Settings of a variant whose server has a worker on each device.

    Args:
        devices: gpu0, gpu1, …
        flags: of the simulated server.
    """
    server = [sys.executable, str(STAND_INS / "tensor_parallel_server.py"), "api-server"]
    server += [str(len(devices)), "{engines}/simulated_server.py", "--port", "{port}"]
    return {
        "engine": "openai",
        "devices": list(devices),
        "command": [*server, "--model", "{model_name}", *flags],
    }


def memory_held(workflow: Workflow) -> list[str]:
    """A sentence on each process that holds memory of a GPU."""
    driver_file = workflow.env.get("STAND_IN_NVML")
    return [
        f"pid {pid} holds {size} bytes of GPU {gpu}"
        for gpu in range(2 if driver_file else 0)
        for pid, size in device_memory.held(gpu, driver_file).items()
    ]


def assert_memory_was_back(workflow: Workflow, sessions: int) -> None:
    """At least so many sessions ended with a proof of it for each of their devices."""
    table = pq.read_table(workflow.folder / "results/test/sessions.parquet").to_pylist()
    proven = [row for row in table if row["gpu_memory_after_bytes"]]
    assert len(proven) >= sessions
    for row in proven:
        idle = [IN_USE_BYTES] * len(row["devices"])
        assert row["gpu_memory_before_bytes"] == row["gpu_memory_after_bytes"] == idle
