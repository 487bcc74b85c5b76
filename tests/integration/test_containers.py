"""A container outlives every process of ours; the workflow ends it all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from integration.containers import Runtime
from integration.kills import COMMAND, Run, cut_power, kill_supervisor, measuring, wait_for
from integration.workflow_copy import Workflow


@pytest.fixture
def contained(tmp_path: Path, runtime: Runtime) -> Workflow:
    workflow = Workflow.fresh(tmp_path / "workflow")
    workflow.config["workloads"].pop("code")
    workflow.config["defaults"].pop("args")
    workflow.config["variants"] = dict.fromkeys(("plain", "spec"), runtime.settings)
    workflow.config["load"] |= {"trials": 1, "concurrency": [1, 2]}
    workflow.write_config()
    return workflow


@pytest.mark.parametrize("kill", [kill_supervisor, cut_power], ids=lambda kill: kill.__name__)
def test_a_container_is_ended_whoever_is_killed(
    contained: Workflow, runtime: Runtime, kill: Callable
):
    run = Run(contained)
    wait_for(lambda: measuring(run), "a point after the first")
    assert runtime.containers
    kill(run, measuring)
    run.process.wait(60)
    assert "Traceback" not in run.output
    wait_for(lambda: not run.processes(), "the end of all processes of ours", 10.0)
    assert bool(runtime.containers) == (kill is cut_power), "Snakemake's last act ends it"
    contained.run(*COMMAND)
    assert len(contained.points()) == 4
    assert not runtime.containers
