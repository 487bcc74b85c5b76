"""Rounds of refinement: what a run adds by itself, and what never makes it add more."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from integration import kills
from integration.kills import Run, wait_for
from integration.workflow_copy import Workflow

from crossover import layout, rounds
from crossover.campaign import load_campaign
from crossover.rounds import Round, Step

SUMMARY = {"summarise_points": 1, "find_crossover": 1, "render_report": 1}
LEVELS = [1, 4, 16]
KEYS = ["variant", "workload", "concurrency"]


def prepared(folder: Path, rounds_allowed: int) -> Workflow:
    """One trial, of which nothing can be said: a round repeats all of it."""
    workflow = Workflow.fresh(folder)
    workflow.config["workloads"].pop("code")
    workflow.config["load"] |= {"concurrency": LEVELS, "trials": 1}
    workflow.write_config(refine={"rounds": rounds_allowed})
    return workflow


def write_plans(workflow: Workflow, *needs: tuple[str, list[int]]) -> None:
    """Plans of rounds as if points had asked for them, whatever these say on a busy machine."""
    folder = workflow.folder / layout.refine_folder(
        load_campaign(workflow.config, "test", workflow.folder)
    )
    for number, (outcome, levels) in enumerate(needs, start=1):
        step = Step("spec", "plain", "chat", outcome, tuple(levels), "by hand")
        plan = Round(number, (step,), tuple(sorted(step.points)))
        rounds.write(plan, rounds.file_of(folder, number))


def plans(workflow: Workflow) -> list[dict[str, Any]]:
    files = sorted(workflow.folder.glob("results/test/refine/*/round~*.json"))
    return [json.loads(file.read_text()) for file in files]


def table(workflow: Workflow, name: str) -> pd.DataFrame:
    return pd.read_parquet(workflow.folder / f"results/test/{name}.parquet")


def assert_measured_as_planned(workflow: Workflow) -> None:
    measured = table(workflow, "points")
    by_trial = {plan["trial"]: plan["points"] for plan in plans(workflow) if plan["points"]}
    assert set(measured["trial"]) == {1, *by_trial}
    for trial, planned in by_trial.items():
        rows = measured[measured["trial"] == trial].sort_values(KEYS)
        own_digest = measured.loc[measured["trial"] == 1, "point_digest"].unique()
        rows["long_window"] = ~rows["point_digest"].isin(own_digest)
        assert rows[[*KEYS, "long_window"]].to_dict("records") == planned


@pytest.fixture(scope="module")
def by_itself(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A run that planned its rounds; on slow servers in long windows, so that points are valid."""
    workflow = prepared(tmp_path_factory.mktemp("by_itself") / "workflow", 2)
    workflow.config["load"]["steady"] |= {"min_s": 3.0, "max_s": 10}
    workflow.config["defaults"]["args"] |= {"memory-ms": 16.0, "overhead-ms": 8.0}
    workflow.write_config()
    workflow.run("-c2", "reports/crossover.html")
    return workflow


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A run with two rounds whose plans were there before."""
    workflow = prepared(tmp_path_factory.mktemp("refined") / "workflow", 2)
    write_plans(workflow, ("measure", [2, 4]), ("measure_longer", [4]))
    workflow.run("-c2", "reports/crossover.html")
    return workflow


@pytest.fixture
def workflow(refined: Workflow, tmp_path: Path) -> Workflow:
    return refined.copied_to(tmp_path / "workflow")


@pytest.mark.alone
def test_a_run_plans_rounds_and_measures_them(by_itself: Workflow):
    assert_measured_as_planned(by_itself)
    assert not by_itself.plan()
    assert not by_itself.plan("reports/crossover.html")
    grid = table(by_itself, "points").query("trial == 1")
    if not grid["valid"].all():
        pytest.skip("this machine is too busy: points of the grid are invalid")
    first = plans(by_itself)[0]
    assert first["points"] == [
        {"variant": arm, "workload": "chat", "concurrency": level, "long_window": False}
        for arm in ("plain", "spec")
        for level in LEVELS
    ]
    assert first["comparisons"][0]["why"] == "nothing was repeated"


@pytest.mark.alone
def test_the_verdict_says_what_came_of_it(by_itself: Workflow):
    found = json.loads((by_itself.folder / "results/test/verdicts.json").read_text())
    assert found["settings"]["alpha"] == pytest.approx(0.02)
    said = found["verdicts"][0]["refinement"]
    measured = [plan["points"] for plan in plans(by_itself) if plan["points"]]
    assert (said["rounds"], said["points"]) == (len(measured), sum(map(len, measured)))
    assert said["ended"] in ("rounds", "target", "decided", "hopeless", "not_comparable")
    assert said["text"] in html.unescape((by_itself.folder / "reports/crossover.html").read_text())


def test_a_plan_that_exists_is_carried_out_as_it_is(refined: Workflow):
    assert [plan["comparisons"][0]["why"] for plan in plans(refined)] == ["by hand", "by hand"]
    assert_measured_as_planned(refined)
    long_s = 4 * refined.config["load"]["steady"]["min_s"]
    assert table(refined, "points").query("trial == 102")["window_s"].min() >= long_s
    assert not refined.plan()


def test_a_round_comes_after_all_before_it_and_in_counterbalanced_order(refined: Workflow):
    order = table(refined, "sessions").sort_values("started_at")
    assert order["trial"].tolist() == [1, 1, 101, 101, 102, 102]
    variants = order["variant"].tolist()
    assert variants[4:] == variants[3:1:-1]


def test_another_analysis_judges_anew_and_measures_nothing(workflow: Workflow):
    workflow.write_config(analysis={"margin": 0.2, "confidence": 0.8})
    before = plans(workflow)
    assert workflow.plan() == {"find_crossover": 1, "render_report": 1}
    workflow.run("-c1", "reports/crossover.html")
    assert plans(workflow) == before
    assert not workflow.plan()


def test_edited_statistics_plan_no_round_anew(workflow: Workflow):
    for name in ("stats/model.py", "refine.py"):
        module = workflow.folder / "workflow/scripts/crossover" / name
        module.write_text(module.read_text() + "\n")
    assert workflow.plan() == {"find_crossover": 1, "render_report": 1}


@pytest.mark.parametrize("trial", [1, 101])
def test_a_deleted_point_is_measured_again_and_no_round_planned_anew(
    workflow: Workflow, trial: int
):
    point = next(p for p in workflow.points() if f"trial~{trial}" in p.parts)
    (point / "point.json").unlink()
    session = {"start_server": 1, "check_health": 1, "measure_point": 1, "stop_server": 1}
    before = plans(workflow)
    assert workflow.plan() == {**session, **SUMMARY}
    workflow.run("-c1", "reports/crossover.html")
    assert plans(workflow) == before
    assert not workflow.plan()


def test_an_added_level_and_trial_are_measured_and_the_rounds_stay(workflow: Workflow):
    workflow.config["load"] |= {"concurrency": [*LEVELS, 32], "trials": 2}
    workflow.write_config()
    planned = workflow.plan()
    assert planned["measure_point"] == 2 + 8
    assert not planned["refine_levels"]


def test_a_changed_variant_has_rounds_of_its_own_and_back_finds_the_old_ones(workflow: Workflow):
    args = workflow.config["variants"]["spec"]["args"]
    args["acceptance"] = 0.6
    workflow.write_config()
    assert workflow.plan()["refine_levels"] == 1
    args["acceptance"] = 0.7
    workflow.write_config()
    assert not workflow.plan()


def test_a_forced_run_plans_anew_and_measures_that(workflow: Workflow):
    before = {p: (p / "point.json").stat().st_mtime for p in workflow.points("concurrency~1")}
    workflow.run("-c2", "-F", "reports/crossover.html")
    assert all((p / "point.json").stat().st_mtime > mtime for p, mtime in before.items())
    first = plans(workflow)[0]
    assert first["comparisons"][0]["why"] != "by hand"
    assert (101 in set(table(workflow, "points")["trial"])) == bool(first["points"])
    assert table(workflow, "sessions")["stop_reason"].eq("asked to stop").all()
    assert not workflow.plan()


def test_a_plan_says_what_may_come(tmp_path: Path):
    workflow = prepared(tmp_path / "workflow", 2)
    planned = workflow.run("-n").stdout
    assert "refinement may add up to 2 rounds (from trial 101) and 60 points" in planned
    assert "refine_levels" in planned
    shown = subprocess.run(
        [sys.executable, "workflow/scripts/plan.py", "config/config.yaml"],
        cwd=workflow.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "points to measure:  6 " in shown
    assert "refinement, at most: " in shown
    assert "note: refinement may add up to 2 rounds (from trial 101) and 60 points" in shown


def test_a_raised_number_of_rounds_plans_one_more(workflow: Workflow):
    workflow.write_config(refine={"rounds": 3, "target_ratio": 1.1})
    output = workflow.run("-n").stdout
    assert "refinement may add up to 1 round (from trial 103)" in output
    assert workflow.plan() == {"refine_levels": 1, **SUMMARY}


def planning(run: Run) -> bool:
    return bool(run.running("refine_levels"))


def measuring_a_round(run: Run) -> bool:
    """A point of round 1 is finished, and the next one's load is on."""
    return any("trial~101" in p.parts for p in run.workflow.points()) and kills.loading(run)


@pytest.mark.parametrize("moment", [planning, measuring_a_round])
def test_a_round_that_was_killed_is_resumed(tmp_path: Path, moment: Callable[[Run], bool]):
    workflow = prepared(tmp_path / "workflow", 1)
    if moment is measuring_a_round:
        write_plans(workflow, ("measure", LEVELS))
    run = Run(workflow)
    wait_for(lambda: moment(run), moment.__name__, timeout_s=120)
    before = kills.finished_points(workflow)
    kills.kill_snakemake(run, kills.measuring)
    run.process.wait(kills.AFTERMATH_S)
    kills.assert_nothing_left(workflow)
    workflow.run(*kills.COMMAND)
    kills.points_kept(workflow, before, remeasured=1)
    assert len(plans(workflow)) == 1
    assert_measured_as_planned(workflow)
    assert not workflow.plan()
