"""What a run does: results, their order, one server a device, and what a failure leaves."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pandas as pd
from integration.workflow_copy import Workflow

RESULTS = "results/test"


def table(workflow: Workflow, name: str) -> pd.DataFrame:
    return pd.read_parquet(workflow.folder / RESULTS / f"{name}.parquet")


def overlapping(sessions: pd.DataFrame) -> list[tuple[str, str]]:
    spans = sessions[["session_id", "started_at", "stopped_at"]].itertuples(index=False)
    return [
        (a.session_id, b.session_id)
        for a, b in itertools.combinations(spans, 2)
        if a.started_at < b.stopped_at and b.started_at < a.stopped_at
    ]


def test_every_point_is_measured_once_and_agrees_with_the_servers_own_count(measured: Workflow):
    points = table(measured, "points")
    assert len(points) == 16
    assert points.duplicated(["variant", "trial", "workload", "concurrency"]).sum() == 0
    assert (points["failed"] == 0).all()
    # requests cancelled at the end of the window are counted by the server up to the moment
    # when it notices, hence not exactly
    ratio = points["received_output_tokens"] / points["engine_output_tokens"]
    assert ratio.between(0.8, 1.05).all(), ratio.describe()
    spec = points[points["variant"] == "spec"]
    assert (spec["acceptance_length"] > 1.5).all()
    assert points[points["variant"] == "plain"]["acceptance_length"].isna().all()


def test_points_agree_with_their_requests(measured: Workflow):
    points, requests = table(measured, "points"), table(measured, "requests")
    key = ["variant", "trial", "workload", "concurrency"]
    ok = requests[requests["status"] == "ok"]
    counted = ok.groupby(key).size().rename("counted").reset_index()
    merged = points.merge(counted, on=key)
    assert len(merged) == 16
    assert (merged["counted"] == merged["completed"]).all()
    assert (ok["output_tokens"] == 8).all()


def test_prompts_do_not_repeat_within_a_session_and_are_the_same_for_both_variants(
    measured: Workflow,
):
    requests = table(measured, "requests")
    sent = {}
    for (variant, *rest), rows in requests.groupby(["variant", "trial", "workload", "concurrency"]):
        sent.setdefault(tuple(rest), {})[variant] = rows.sort_values("request_id")[
            "prompt_id"
        ].tolist()
    for point, by_variant in sent.items():
        least = min(map(len, by_variant.values()))
        assert by_variant["plain"][:least] == by_variant["spec"][:least], point


def test_sessions_are_counterbalanced_and_never_overlap_on_a_device(measured: Workflow):
    sessions = table(measured, "sessions")
    assert len(sessions) == 4
    assert not overlapping(sessions)
    order = sessions.sort_values("started_at")["variant"].tolist()
    assert order == order[::-1]
    assert sessions["stop_reason"].eq("asked to stop").all()
    assert sessions["processes_left"].map(len).eq(0).all()
    assert sessions["port_closed"].all()


def test_more_cores_give_the_same_results_and_still_one_server_a_device(tmp_path: Path):
    workflow = Workflow.fresh(tmp_path / "workflow")
    workflow.config["workloads"].pop("code")
    workflow.write_config()
    workflow.run("-c8", "reports/crossover.html")
    assert len(table(workflow, "points")) == 8
    assert not overlapping(table(workflow, "sessions"))
    assert not workflow.plan()


def test_the_tables_and_verdicts_can_be_read_without_our_code(measured: Workflow):
    verdicts = json.loads((measured.folder / RESULTS / "verdicts.json").read_text())
    assert {v["workload"] for v in verdicts["verdicts"]} == {"chat", "code"}
    policy = json.loads((measured.folder / RESULTS / "policy.json").read_text())
    assert {w["workload"] for w in policy["workloads"]} == {"chat", "code"}
    page = (measured.folder / "reports/crossover.html").read_text()
    assert "spec" in page


def test_logs_hold_no_control_characters(measured: Workflow):
    logs = list((measured.folder / "logs").rglob("*.log"))
    assert logs
    for log in logs:
        assert "\x1b" not in log.read_text(), log
        assert "\r" not in log.read_text(), log


BROKEN = {
    "crashes": ({"fail-start": 3}, "ended during start-up"),
    "answers-500": ({"error-500": True}, "500"),
    "dies": ({"die-after": 6}, "the server is gone"),
    "hangs": ({"hang-after": 6}, "it hung and was ended: nothing came on any of"),
}
"""Faults by variant, and what a run says of each."""


def test_broken_variants_are_told_and_the_others_are_measured(tmp_path: Path):
    workflow = Workflow.fresh(tmp_path / "workflow")
    workflow.config["workloads"].pop("code")
    workflow.config["variants"] |= {name: {"args": fault} for name, (fault, _) in BROKEN.items()}
    workflow.config["load"]["trials"] = 1
    workflow.write_config()
    done = workflow.run("-c1", "--keep-going", check=False)
    assert done.returncode != 0
    for _, said in BROKEN.values():
        assert said in done.stdout
    assert "Traceback" not in done.stdout
    measured_variants = {p.parents[3].parent.name for p in workflow.points()}
    assert {"plain", "spec"} <= measured_variants
    workflow.config["variants"] |= {name: {} for name in BROKEN}
    workflow.write_config()
    plan = workflow.plan()
    assert plan["start_server"] == len(BROKEN)
    workflow.run("-c1", "reports/crossover.html")
    assert not workflow.plan()
