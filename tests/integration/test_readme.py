"""The README's steps to add an engine, followed in a copy of the workflow."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from integration.workflow_copy import ROOT, Workflow

SECTION = (ROOT / "README.md").read_text().partition("\n## Add an engine\n")[2].split("\n## ")[0]
ENGINE, LINE, CONTRACT_LINE, CAMPAIGN = re.findall(r"```\w+\n(.*?)```", SECTION, re.DOTALL)


def insert(path: Path, after: str, line: str) -> None:
    text = path.read_text()
    assert text.count(after) == 1
    path.write_text(text.replace(after, after + line))


@pytest.fixture
def workflow(tmp_path: Path) -> Workflow:
    """A copy to which the engine was added."""
    workflow = Workflow.fresh(tmp_path / "workflow")
    engines = workflow.folder / "workflow/scripts/crossover/engines"
    (engines / "parrot.py").write_text(ENGINE)
    insert(engines / "__init__.py", "ENGINES = {\n", LINE)
    return workflow


def test_the_example_is_as_short_as_it_looks():
    assert len(ENGINE.splitlines()) <= 32


def test_the_engine_keeps_the_contract(workflow: Workflow):
    contract = workflow.folder / "test_engine_contract.py"
    shutil.copy2(ROOT / "tests/unit/test_engine_contract.py", contract)
    insert(contract, "VARIANTS = {\n", CONTRACT_LINE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", contract],
        cwd=workflow.folder,
        env={**os.environ, "PYTHONPATH": str(workflow.folder / "workflow/scripts")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    verbose = re.search(r"(\d+) passed", done.stdout)
    assert int(verbose[1]) > 0


def test_a_campaign_runs_on_the_engine(workflow: Workflow):
    added = yaml.safe_load(CAMPAIGN)
    workflow.config["defaults"] |= added["defaults"]
    workflow.config["variants"] = added["variants"]
    workflow.config["load"] |= {"concurrency": [2], "trials": 1}
    workflow.config["load"]["steady"]["min_s"] = 2  # a few of the samples, one each half second
    del workflow.config["workloads"]["code"]
    workflow.write_config()
    workflow.run("-c1", "reports/crossover.html")
    results = workflow.folder / "results/test"
    points = pd.read_parquet(results / "points.parquet")
    assert (points["failed"] == 0).all()
    assert (points["engine_output_tokens"] > 0).all()
    assert points["queued_requests_mean"].notna().all()
    assert points["kv_cache_usage_max"].isna().all(), "the example does not read it"
    record = (results / "drafting").rglob("health.json")
    assert json.loads(next(record).read_text())["variant"] == "drafting"
