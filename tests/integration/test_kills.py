"""However a run ends, nothing of it is left, and the same command goes on.

One cell for each kind of kill by default; `--kill-rounds 3` runs every cell three times.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from integration import kills
from integration.gpus import assert_memory_was_back, give_gpus, server_over
from integration.kills import Run, wait_for
from integration.workflow_copy import Workflow

from crossover.early_ends import GO_ON

STUBBORN = {
    "ignore-term": True,
    "fork-child": True,
    "daemonise-grandchild": True,
    "leak-port": True,
}
"""Flags of a server that nothing but KILL ends, whose children survive TERM and a new session."""


class Cell(NamedTuple):
    """One cell of the kill matrix."""

    kill: Callable[[Run, Callable], None]
    moment: Callable[[Run], bool]
    stubborn: bool = False
    namespaces: bool = True
    over_two_gpus: bool = False

    def __str__(self) -> str:
        words = [self.kill.__name__, self.moment.__name__]
        words += ["stubborn"] if self.stubborn else []
        words += ["two_gpus"] if self.over_two_gpus else []
        words += [] if self.namespaces else ["no_namespaces"]
        return "-".join(words)

    def campaign(self, folder: Path) -> Workflow:
        """Four points, each phase of whose run lasts long enough to be met."""
        workflow = Workflow.fresh(folder)
        workflow.config["workloads"].pop("code")
        workflow.config["defaults"]["args"] |= {"startup-s": 0.8, "stop-s": 0.5}
        workflow.config["load"] |= {"trials": 1, "concurrency": [1, 2]}
        workflow.config["load"]["steady"]["min_s"] = 0.4
        if self.stubborn:
            workflow.config["defaults"]["args"] |= STUBBORN
            workflow.config["defaults"]["stop_grace_s"] = 1
        if self.over_two_gpus:
            workflow.config["defaults"].pop("args")
            workflow.config["variants"] = {
                name: server_over(["gpu0", "gpu1"], "--stop-s", "0.5") for name in ("plain", "spec")
            }
            give_gpus(workflow, 2)
        if not self.namespaces:
            refuse_namespaces(workflow)
        workflow.write_config()
        return workflow


def refuse_namespaces(workflow: Workflow) -> None:
    """Let `unshare` fail as it does in a container that may not make namespaces."""
    unshare = workflow.folder / "bin/unshare"
    unshare.parent.mkdir()
    unshare.write_text("#!/bin/sh\necho unshare: Operation not permitted >&2\nexit 1\n")
    unshare.chmod(0o755)
    workflow.env["PATH"] = f"{unshare.parent}:{workflow.env['PATH']}"


PROCESS_KILLS = [k for k in kills.KILLS if k not in (kills.fill_disk, kills.cut_power)]
"""Kills after which it matters whether the other processes of a server want to end."""

EVERY_CELL = [
    *(
        Cell(kill, moment)
        for moment in kills.MOMENTS
        for kill in kills.KILLS
        if (kill, moment) not in kills.IMPOSSIBLE
    ),
    *(
        Cell(kill, kills.measuring, stubborn=True, namespaces=namespaces)
        for namespaces in (True, False)
        for kill in PROCESS_KILLS
    ),
    *(
        Cell(kill, kills.measuring, over_two_gpus=True, namespaces=namespaces)
        for namespaces in (True, False)
        for kill in kills.OVER_TWO_GPUS
    ),
]
ONE_OF_EACH_KILL = [
    Cell(kills.interrupt, kills.measuring),
    Cell(kills.terminate, kills.waiting),
    Cell(kills.kill_snakemake, kills.measuring, stubborn=True),
    Cell(kills.kill_supervisor, kills.measuring, stubborn=True, namespaces=False),
    Cell(kills.kill_server, kills.measuring, stubborn=True, namespaces=False),
    Cell(kills.kill_job, kills.starting),
    Cell(kills.fill_disk, kills.aggregating),
    Cell(kills.cut_power, kills.stopping),
    Cell(kills.kill_api_server, kills.measuring, over_two_gpus=True),
    Cell(kills.kill_worker, kills.measuring, over_two_gpus=True, namespaces=False),
    Cell(kills.kill_supervisor, kills.measuring, over_two_gpus=True, namespaces=False),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" in metafunc.fixturenames:
        cells = EVERY_CELL * metafunc.config.getoption("kill_rounds") or ONE_OF_EACH_KILL
        metafunc.parametrize("cell", cells, ids=str)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A campaign whose report is made."""
    workflow = Cell(kills.fill_disk, kills.aggregating).campaign(
        tmp_path_factory.mktemp("finished") / "workflow"
    )
    workflow.run(*kills.COMMAND)
    return workflow


@pytest.fixture(autouse=True)
def end_what_a_failed_test_left(tmp_path: Path) -> Iterator[None]:
    yield
    for process in kills.processes_of(Workflow(tmp_path / "workflow")):
        process.kill()


def test_a_kill_leaves_nothing_and_loses_nothing(
    cell: Cell, tmp_path: Path, request: pytest.FixtureRequest
):
    folder = tmp_path / "workflow"
    if cell.moment is kills.aggregating:
        workflow = request.getfixturevalue("finished").copied_to(folder)
        for made in ("results/test/points.parquet", "reports/crossover.html"):
            (workflow.folder / made).unlink()
    else:
        workflow = cell.campaign(folder)
    if cell.kill is not kills.fill_disk:
        before = kill_at(workflow, cell)
        assert_recovers(workflow, before)
        if cell.over_two_gpus:
            assert_memory_was_back(workflow, sessions=2)
        return
    with kills.small_disk(workflow):
        before = kill_at(workflow, cell)
        (workflow.folder / "results/filler").unlink()
        assert_recovers(workflow, before)


def kill_at(workflow: Workflow, cell: Cell) -> dict[Path, str]:
    """Begin a run, kill at the cell's moment, and see it end; the points finished before."""
    run = Run(workflow)
    wait_for(lambda: cell.moment(run), cell.moment.__name__)
    before = kills.finished_points(workflow)
    cell.kill(run, cell.moment)
    if (cell.kill, cell.moment) == (kills.kill_server, kills.stopping):
        # nothing is lost with a server that was to end: the run goes on to its report
        assert run.process.wait(60) == 0
        return before
    run.process.wait(kills.AFTERMATH_S)
    assert run.process.returncode != 0
    # Ctrl-C can meet a job that has not imported its modules yet
    is_importing = cell.kill is kills.interrupt and cell.moment in (
        kills.waiting,
        kills.aggregating,
    )
    assert is_importing or "Traceback" not in run.output
    assert GO_ON in run.output or cell.kill in (kills.kill_snakemake, kills.cut_power)
    assert "No space left" in run.output or cell.kill is not kills.fill_disk
    return before


def assert_recovers(workflow: Workflow, before: dict[Path, str]) -> None:
    kills.assert_nothing_left(workflow)
    now = kills.finished_points(workflow)
    assert {point: now[point] for point in before} == before
    kills.assert_completes(workflow, now, points=4)


@pytest.mark.parametrize(
    "kill", [kills.interrupt, kills.terminate, kills.kill_snakemake, kills.kill_server]
)
def test_a_kill_does_not_wait_for_a_long_point(kill: Callable, tmp_path: Path):
    workflow = Cell(kill, kills.measuring).campaign(tmp_path / "workflow")
    workflow.config["load"]["steady"] |= {"min_s": 100, "max_s": 200}
    workflow.write_config()
    run = Run(workflow)
    wait_for(lambda: kills.loading(run), "load")
    kill(run, kills.measuring)
    run.process.wait(kills.AFTERMATH_S)
    kills.assert_nothing_left(workflow)
    assert not workflow.points()


def test_random_kills_leave_nothing(tmp_path: Path, pytestconfig: pytest.Config):
    count = pytestconfig.getoption("random_kills")
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    trials = 2 + count // 2  # more than the runs can finish before they are killed
    workflow = Cell(kills.kill_snakemake, kills.measuring).campaign(tmp_path / "workflow")
    workflow.config["load"]["trials"] = trials
    workflow.write_config()
    settled: dict[Path, str] = {}
    for number in range(count):
        run = Run(workflow)
        time.sleep(chance.uniform(0.2, 8.0))
        assert run.process.poll() is None, run.output
        chance.choice(kills.AT_ANY_TIME)(run, None)
        run.process.wait(60)
        if number % 2 == 0:  # the next run begins on the heels of this one
            continue
        kills.assert_nothing_left(workflow)
        settled = kills.points_kept(workflow, settled, remeasured=2)
    kills.assert_nothing_left(workflow)
    kills.assert_completes(workflow, kills.finished_points(workflow), points=4 * trials)
