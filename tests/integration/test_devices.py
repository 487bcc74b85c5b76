"""Several GPUs: who runs side by side, who alone, and whose memory must be back.

The GPUs are those of the stand-in for NVML; a server has a worker on each device that CUDA shows
it, and does not start where the memory of one is taken.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from integration.containers import STAND_INS
from integration.gpus import assert_memory_was_back, give_gpus, memory_held, server_over
from integration.kills import COMMAND, Run, loading, wait_for
from integration.workflow_copy import Workflow

ON = {"first": ["gpu0"], "second": ["gpu1"], "both": ["gpu0", "gpu1"]}
"""Devices by variant."""


@pytest.fixture
def two_gpus(tmp_path: Path) -> Workflow:
    """A host with two GPUs, and a variant on each and one over both."""
    workflow = Workflow.fresh(tmp_path / "workflow")
    workflow.config["workloads"].pop("code")
    workflow.config["defaults"].pop("args")
    workflow.config["variants"] = {name: server_over(devices) for name, devices in ON.items()}
    workflow.config["baseline"] = "first"
    give_gpus(workflow, 2)
    workflow.write_config()
    return workflow


def sessions_of(workflow: Workflow) -> pd.DataFrame:
    return pd.read_parquet(workflow.folder / "results/test/sessions.parquet")


def test_devices_are_used_side_by_side_and_a_server_over_both_runs_alone(two_gpus: Workflow):
    two_gpus.run("-c8", *COMMAND[1:])
    sessions = sessions_of(two_gpus)
    assert sessions["variant"].value_counts().to_dict() == dict.fromkeys(ON, 2)
    at_once = {
        frozenset((a.variant, b.variant))
        for a, b in itertools.combinations(sessions.itertuples(), 2)
        if a.started_at < b.stopped_at and b.started_at < a.stopped_at
    }
    assert at_once == {frozenset(("first", "second"))}
    for session in sessions.itertuples():
        numbers = ",".join(device.removeprefix("gpu") for device in ON[session.variant])
        assert dict(session.env)["CUDA_VISIBLE_DEVICES"] == numbers
    assert sessions["stop_reason"].eq("asked to stop").all(), "none was ended for another"
    assert_memory_was_back(two_gpus, sessions=6)
    assert not memory_held(two_gpus)


@contextmanager
def memory_taken(workflow: Workflow, gpu: int) -> Iterator[int]:
    """Another program holds memory of a GPU; its pid."""
    take = f"import device_memory; device_memory.hold({gpu}, 2**30); print('up'); input()"
    program = subprocess.Popen(
        [sys.executable, "-u", "-c", take],
        env={**workflow.env, "PYTHONPATH": str(STAND_INS), "CROSSOVER_LOCK_DIR": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        program.stdout.readline()
        yield program.pid
    finally:
        program.communicate(b"\n")


def test_memory_that_is_not_back_on_the_second_device_ends_the_run_and_is_told(
    two_gpus: Workflow,
):
    two_gpus.config["variants"] = {name: server_over(ON["both"]) for name in ("first", "second")}
    two_gpus.config["defaults"]["stop_grace_s"] = 1
    two_gpus.write_config()
    run = Run(two_gpus)
    wait_for(lambda: loading(run), "load")
    with memory_taken(two_gpus, gpu=1) as pid:
        run.process.wait(60)
        assert run.process.returncode != 0
        held = f"gpu1: 1024 MiB of memory are held by pid {pid} ("
        assert held in run.output
        assert "gpu0:" not in run.output
        (record,) = two_gpus.folder.glob("results/test/*/*/trial~*/sessions/*.jsonl")
        *_, stopped = map(json.loads, record.read_text().splitlines())
        assert [told.startswith(held) for told in stopped["gpu_memory_held"]] == [True]
    two_gpus.run(*COMMAND)
    assert not two_gpus.plan(*COMMAND)
