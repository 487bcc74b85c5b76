"""A small campaign on the real default engine, end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from integration.workflow_copy import ROOT, Workflow


@pytest.mark.alone
def test_a_real_engine_is_measured_and_agrees_with_its_own_counters(tmp_path: Path):
    workflow = Workflow.fresh(tmp_path / "workflow")
    shutil.copy2(ROOT / "config/prompts/code.jsonl", workflow.folder / "config/prompts")
    workflow.config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    workflow.config["defaults"]["devices"] = ["test0"]
    workflow.config["load"] |= {
        "concurrency": [1, 4],
        "trials": 1,
        "ramp_s": 0.2,
        "steady": {"min_s": 1, "completions_per_client": 2, "max_s": 60},
    }
    workflow.config["workloads"]["code"]["max_tokens"] = (
        24  # time per token takes 16 after the first
    )
    workflow.write_config()
    workflow.run("-c1", "reports/crossover.html")

    results = workflow.folder / "results" / workflow.config["campaign"]
    points = pd.read_parquet(results / "points.parquet")
    assert len(points) == 4
    assert (points["completed"] > 0).all()
    assert (points["failed"] == 0).all()
    requests = pd.read_parquet(results / "requests.parquet")
    assert (requests[requests["status"] == "ok"]["output_tokens"] == 24).all()
    # what was cut off at the window's end goes on for a few tokens in the server
    ratio = points["received_output_tokens"] / points["engine_output_tokens"]
    assert ratio.between(0.75, 1.02).all(), ratio.tolist()
    drafting = points[points["variant"] == "ngram"]
    assert (drafting["verify_steps"] > 0).all()
    assert (drafting["acceptance_length"] > 1).all()
    assert points[points["variant"] == "plain"]["acceptance_length"].isna().all()

    sessions = pd.read_parquet(results / "sessions.parquet")
    assert sessions["processes_left"].map(len).eq(0).all()
    assert sessions["engine_version"].str.contains("llama").all()
    verdicts = json.loads((results / "verdicts.json").read_text())["verdicts"]
    assert [v["metric"] for v in verdicts] == ["output_throughput", "decode_rate", "ttft"]
    verdict = verdicts[0]
    assert verdict["verdict"] == "inconclusive"
    assert "single_repeat" in verdict["reasons"], "one trial is no verdict"
    assert (workflow.folder / "reports/crossover.html").stat().st_size < 2_000_000
    assert not workflow.plan()
