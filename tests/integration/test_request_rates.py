"""A campaign at request rates, from the file to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from integration.workflow_copy import CAMPAIGN, Workflow

RATES = [10, 25.5]
LOAD = {key: value for key, value in CAMPAIGN["load"].items() if key != "concurrency"} | {
    "arrivals": {"process": "poisson", "request_rate": RATES},
}
POINTS = 2 * 2 * len(RATES)


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    workflow = Workflow.fresh(tmp_path_factory.mktemp("open") / "workflow")
    workflow.write_config(load=LOAD, workloads={"chat": CAMPAIGN["workloads"]["chat"]})
    assert workflow.plan()["measure_point"] == POINTS
    done = workflow.run("-c1", "reports/crossover.html")
    assert "chat, 25.5 requests/s: " in done.stdout
    return workflow


def test_every_rate_is_measured_on_its_own_path(rated: Workflow):
    folders = list(rated.folder.glob("results/test/*/*/trial~*/chat/*/request_rate~*"))
    assert len(folders) == POINTS
    assert {folder.name for folder in folders} == {f"request_rate~{rate}" for rate in RATES}
    assert not rated.plan(), "what is measured stays so"


def test_the_tables_know_rate_and_schedule(rated: Workflow):
    points = pd.read_parquet(rated.folder / "results/test/points.parquet")
    assert points["concurrency"].isna().all()
    assert sorted(points["request_rate"].unique()) == RATES
    assert points["backlog_growth"].notna().all()
    assert not points["in_flight_limit_reached"].any()
    requests = pd.read_parquet(rated.folder / "results/test/requests.parquet")
    assert (requests["sent_s"] >= requests["scheduled_s"]).all()


def test_both_variants_of_a_trial_got_the_same_schedule(rated: Workflow):
    requests = pd.read_parquet(rated.folder / "results/test/requests.parquet")
    requests = requests[(requests["trial"] == 1) & (requests["request_rate"] == RATES[1])]
    first = [
        of_arm.sort_values("request_id")["scheduled_s"].diff().iloc[1:20].to_numpy()
        for _, of_arm in requests.groupby("variant")
    ]
    assert first[0] == pytest.approx(first[1], abs=1e-6)


def test_verdicts_policy_and_report_speak_of_requests_a_second(rated: Workflow):
    found = json.loads((rated.folder / "results/test/verdicts.json").read_text())
    assert found["settings"]["metric"] == "decode_rate"
    by_metric = {v["metric"]: v for v in found["verdicts"]}
    assert {"decode_rate", "output_throughput", "ttft"} <= set(by_metric)
    for verdict in by_metric.values():
        assert verdict["axis"] == "request_rate"
        assert verdict["break_even"] is None
        assert "concurrency" not in verdict["sentence"]
    (workload,) = json.loads((rated.folder / "results/test/policy.json").read_text())["workloads"]
    assert workload["axis"] == "request_rate"
    page = (rated.folder / "reports/crossover.html").read_text()
    assert by_metric["decode_rate"]["sentence"].replace(" %", "\N{NO-BREAK SPACE}%") in page
    assert "Open loop: a level sends requests at its rate" in page


def test_an_added_rate_is_one_session_each_and_only_that_rate(rated: Workflow, tmp_path: Path):
    workflow = rated.copied_to(tmp_path / "workflow")
    arrivals = {**LOAD["arrivals"], "request_rate": [5, *RATES]}
    workflow.write_config(load={**LOAD, "arrivals": arrivals})
    planned = workflow.plan()
    assert (planned["start_server"], planned["measure_point"]) == (4, 4)
