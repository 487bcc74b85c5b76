"""However a run ends, no server of it is left, and the next command just works."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from integration.workflow_copy import SNAKEMAKE, Workflow

from crossover.server import processes
from crossover.server.session import Handle


@pytest.fixture
def small(tmp_path: Path) -> Workflow:
    workflow = Workflow.fresh(tmp_path / "workflow")
    workflow.config["workloads"].pop("code")
    workflow.config["variants"]["spec"]["args"] |= {"daemonise-grandchild": True}
    workflow.config["load"] |= {"trials": 1, "concurrency": [1, 2, 4]}
    workflow.write_config()
    return workflow


def begin(workflow: Workflow) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SNAKEMAKE, "-c1", "reports/crossover.html"],
        cwd=workflow.folder,
        env=workflow.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # a process started by `&` of a script ignores SIGINT, and would hand that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(condition, what: str, timeout_s: float = 60.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never seen: {what}"
        time.sleep(0.02)
    return found


def live_handle(workflow: Workflow) -> Handle | None:
    for path in workflow.folder.glob("results/test/*/*/trial~1/handle.json"):
        handle = Handle.read(path)
        if handle and processes.is_alive(handle.supervisor):
            return handle
    return None


def assert_nothing_left(session_id: str) -> None:
    wait_for(lambda: not processes.of_session(session_id), "the end of the session", 10.0)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("moment", ["starting", "measuring"])
def test_a_signal_to_snakemake_leaves_nothing_and_loses_no_point(
    small: Workflow, how: signal.Signals, moment: str
):
    run = begin(small)
    if moment == "measuring":
        wait_for(lambda: len(small.points()) == 2, "a second point")
    handle = wait_for(lambda: live_handle(small), "a server")
    run.send_signal(how)
    run.communicate(timeout=60)
    assert_nothing_left(handle.session_id)
    written = sorted((p / "point.json").stat().st_mtime_ns for p in small.points())
    small.run("-c1", "reports/crossover.html")
    assert len(small.points()) == 6
    now = {(p / "point.json").stat().st_mtime_ns for p in small.points()}
    # one that was written but whose job Snakemake had not seen end is measured again
    assert set(written[:-1]) <= now


@pytest.mark.parametrize("victim", ["supervisor", "server"])
def test_a_killed_server_ends_the_point_and_the_next_run_goes_on(small: Workflow, victim: str):
    run = begin(small)
    wait_for(lambda: small.points(), "a first point")
    handle = wait_for(lambda: live_handle(small), "a server")
    pid = processes.pid_of(handle.supervisor) if victim == "supervisor" else handle.pid
    os.kill(pid, signal.SIGKILL)
    output, _ = run.communicate(timeout=60)
    assert run.returncode != 0
    assert "Traceback" not in output
    assert_nothing_left(handle.session_id)
    small.run("-c1", "reports/crossover.html")
    assert len(small.points()) == 6
