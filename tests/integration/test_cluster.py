"""A campaign on a real Slurm of two nodes: `make test-slurm` installs and runs it."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from integration import slurm_cluster
from integration.kills import AFTERMATH_S, finished_points, points_kept, processes_of, wait_for
from integration.slurm_cluster import Cluster
from integration.workflow_copy import SNAKEMAKE, Workflow

from crossover.server import session
from crossover.server.session import Handle

ON_SLURM = (
    *("--profile", "profiles/slurm", "--jobs", "2"),
    *("--latency-wait", "5", "--slurm-init-seconds-before-status-checks", "2"),
    "reports/crossover.html",
)

if importlib.util.find_spec("snakemake_executor_plugin_slurm") is None:
    pytest.skip("no snakemake-executor-plugin-slurm (make slurm)", allow_module_level=True)
if why := slurm_cluster.missing():
    pytest.skip(why, allow_module_level=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster.slurm(tmp_path_factory.mktemp("slurm") / "root") as cluster:
        yield cluster


@pytest.fixture
def workflow(cluster: Cluster, tmp_path: Path) -> Workflow:
    """Two variants, two trials, points of a second or two."""
    workflow = Workflow.fresh(tmp_path / "workflow")
    workflow.env = cluster.env
    workflow.config["workloads"].pop("code")
    workflow.config["load"]["concurrency"] = [1, 2, 4]
    workflow.config["load"]["steady"]["min_s"] = 1.0
    workflow.write_config()
    return workflow


@contextmanager
def running(workflow: Workflow) -> Iterator[subprocess.Popen[bytes]]:
    """Snakemake on the cluster, which will have ended at the end of the block."""
    with open(workflow.folder / "output.txt", "wb") as output:
        run = subprocess.Popen(
            [*SNAKEMAKE, *ON_SLURM],
            cwd=workflow.folder,
            env=workflow.env,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield run
        run.wait(120)
    finally:
        run.kill()
        run.wait()


def sweeping(workflow: Workflow) -> Handle | None:
    """A session that has measured a point and has others before it; None: there is none."""
    for file in workflow.folder.glob("results/test/*/*/trial~*/handle.json"):
        points = len(list(file.parent.glob("*/*/concurrency~*/point.json")))
        if 0 < points < 3 and (handle := Handle.read(file)):
            return handle
    return None


def host(handle: Handle) -> str:
    return handle.supervisor.split(":")[0]


def sessions(workflow: Workflow) -> pd.DataFrame:
    return pd.read_parquet(workflow.folder / "results/test/sessions.parquet")


def together(a: pd.Series, b: pd.Series) -> bool:
    """Whether two sessions overlapped. One whose end was not recorded ended before its node."""
    end_a, end_b = (s["stopped_at"] if s["stopped_at"] > 0 else s["started_at"] for s in (a, b))
    return bool(a["started_at"] < end_b and b["started_at"] < end_a)


def pairs(table: pd.DataFrame) -> Iterator[tuple[pd.Series, pd.Series]]:
    return itertools.combinations([row for _, row in table.iterrows()], 2)


def test_sessions_run_side_by_side_and_one_that_is_cancelled_is_resumed(
    cluster: Cluster, workflow: Workflow
):
    with running(workflow) as run:
        handle = wait_for(lambda: sweeping(workflow), "a session in mid-sweep")
        (job,) = (id for id, node in cluster.jobs().items() if node == host(handle))
        cluster.ask("scancel", job)
        finished = finished_points(workflow)
        wait_for(lambda: not cluster.processes(job), f"the end of job {job}", AFTERMATH_S)
    assert run.returncode != 0
    assert session.read(workflow.folder / handle.record)["stop_reason"] in (
        "owner gone",
        "asked to stop",
    )
    points_kept(workflow, finished, remeasured=0)
    said = (workflow.folder / "output.txt").read_text().partition("\ncrossover: ")[2]
    assert f"{handle.variant}, trial {handle.trial}: " in said
    assert "CANCELLED" in said
    (log,) = re.findall(rf"see (\S+/{job}\.log)", said)
    assert "CANCELLED" in (workflow.folder / log).read_text()

    workflow.run(*ON_SLURM)
    assert len(points_kept(workflow, finished, remeasured=1)) == 12
    assert not workflow.plan("--profile", "profiles/slurm", "reports/crossover.html")

    table = sessions(workflow)
    assert set(table["host"]) == {"node1", "node2"}
    assert any(together(a, b) for a, b in pairs(table) if a["host"] != b["host"])
    assert not any(together(a, b) for a, b in pairs(table) if a["host"] == b["host"])
    assert not processes_of(workflow)
    # resumed: the cancelled session's own points stayed with it
    again = table[(table["variant"] == handle.variant) & (table["trial"] == handle.trial)]
    assert len(again) == 2


def test_a_node_that_crashes_is_given_up_and_its_session_resumed(
    cluster: Cluster, workflow: Workflow
):
    workflow.config["load"]["trials"] = 1
    workflow.config["variants"].pop("spec")
    workflow.write_config()
    with running(workflow) as run:
        handle = wait_for(lambda: sweeping(workflow), "a session in mid-sweep")
        cluster.crash_node(host(handle))
        finished = finished_points(workflow)
    assert run.returncode != 0
    points_kept(workflow, finished, remeasured=0)
    cluster.start_node(host(handle))
    cluster.wait_for_nodes()

    refused = workflow.run(*ON_SLURM, check=False)
    assert refused.returncode != 0
    assert f"still being measured on {host(handle)}" in refused.stdout

    long_ago = time.time() - session.SILENT_S - 1
    for file in (handle.record, handle.samples):
        os.utime(workflow.folder / file, (long_ago, long_ago))
    workflow.run(*ON_SLURM)
    assert len(points_kept(workflow, finished, remeasured=1)) == 3
    assert not workflow.plan("--profile", "profiles/slurm", "reports/crossover.html")


def test_a_trial_can_be_kept_on_one_node(workflow: Workflow):
    workflow.config["load"] |= {"concurrency": [1], "trials": 1}
    workflow.write_config()
    workflow.run(*ON_SLURM, "--group-components", "trial1=9")
    table = sessions(workflow)
    assert len(table) == 2
    assert table["host"].nunique() == 1, "with both nodes free"
    assert not any(together(a, b) for a, b in pairs(table))


def test_sessions_share_nodes_where_a_gpu_keeps_them_apart(workflow: Workflow):
    workflow.config["load"]["concurrency"] = [1]
    workflow.config["defaults"]["resources"] = {"gpu": 1, "slurm_extra": "", "cpus_per_task": 2}
    workflow.write_config()
    workflow.run(*ON_SLURM, "--jobs", "4")
    table = sessions(workflow)
    assert len(table) == 4
    assert not any(together(a, b) for a, b in pairs(table) if a["host"] == b["host"])


def test_a_run_ends_with_why_slurm_refused_its_jobs(workflow: Workflow):
    workflow.config["defaults"]["resources"] = {"slurm_partition": "nowhere"}
    workflow.write_config()
    refused = workflow.run(*ON_SLURM, check=False)
    assert refused.returncode != 0
    *_, said = refused.stdout.partition("crossover: ")
    assert "invalid partition specified: nowhere" in said
    assert said.count("nowhere") == 1, "of two sessions"
    assert said.count(", trial ") == 2
