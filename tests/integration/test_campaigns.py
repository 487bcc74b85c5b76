"""The campaigns that are supplied: each can be planned anywhere, and the rehearsal finds its truth."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.workflow_copy import ROOT, Workflow

from crossover.campaign import Campaign, load_campaign
from crossover.campaign_file import read_yaml
from crossover.engines.simulated import settings
from crossover.engines.simulated_model import true_crossovers, true_throughput

CAMPAIGNS = sorted((ROOT / "config/campaigns").glob("*.yaml"))
MEASURED = [path for path in CAMPAIGNS if "imports" not in read_yaml(path)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A copy with all supplied campaigns and prompts, without any weights."""
    workflow = Workflow.fresh(tmp_path_factory.mktemp("campaigns") / "workflow")
    for name in ("campaigns", "prompts"):
        shutil.copytree(
            ROOT / "config" / name, workflow.folder / "config" / name, dirs_exist_ok=True
        )
    return workflow


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_every_campaign_is_planned_without_its_engine_or_a_gpu(clone: Workflow, path: Path):
    file = f"config/campaigns/{path.name}"
    campaign = load_campaign(read_yaml(path), path.name, root=ROOT)
    sessions = len(campaign.variants) * campaign.load.trials
    points = sessions * len(campaign.workloads) * len(campaign.load.levels)
    planned = clone.plan("--configfile", file)
    assert (planned["start_server"], planned["measure_point"]) == (sessions, points)
    cost = subprocess.run(
        [sys.executable, ROOT / "workflow/scripts/plan.py", file],
        cwd=clone.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"points to measure:  {points} " in cost.stdout


def test_weights_that_are_elsewhere_are_noted_in_a_plan_and_refused_in_a_run(clone: Workflow):
    file = ("--configfile", "config/campaigns/h200-vllm-synthetic.yaml")
    note = "model.path: there is no 'gpu/models/llama8b' here"
    assert note in clone.run("-n", *file).stdout
    refused = clone.run("-c1", *file, check=False)
    assert refused.returncode != 0
    assert note in refused.stdout
    assert "Traceback" not in refused.stdout
    assert not list((clone.folder / "results").rglob("handle.json"))


@pytest.fixture(scope="module")
def rehearsed(clone: Workflow) -> tuple[Workflow, Campaign]:
    """The rehearsal, shortened: two levels, short answers and windows, all servers at once."""
    config = read_yaml(ROOT / "config/campaigns/kimi-rehearsal.yaml")
    config["workloads"]["code"]["max_tokens"] = 16
    config["load"] |= {
        "concurrency": [1, 10],
        "ramp_s": 0,
        "warmup": {"completions_per_client": 1, "max_s": 10},
        "steady": {"min_s": 2, "completions_per_client": 2, "max_s": 10},
    }
    for number, name in enumerate(config["variants"]):
        config["variants"][name]["devices"] = [f"rehearsal{number}"]
    (clone.folder / "rehearsal.yaml").write_text(yaml.safe_dump(config))
    clone.run("-c3", "reports/crossover.html", "--configfile", "rehearsal.yaml")
    return clone, load_campaign(config, "rehearsal.yaml", root=ROOT)


def verdict(workflow: Workflow, variant: str) -> dict[str, Any]:
    found = json.loads((workflow.folder / "results/kimi-rehearsal/verdicts.json").read_text())
    on_throughput = [v for v in found["verdicts"] if v["metric"] == "output_throughput"]
    (verdict,) = [v for v in on_throughput if v["variant"] == variant]
    return verdict


def true_ratio(campaign: Campaign, variant: str, level: int) -> float:
    arms = [settings(campaign.variants[name]) for name in (variant, "plain")]
    tokens = campaign.workloads["code"].max_tokens
    ours, plain = (true_throughput(arm, level, tokens, prompt_tokens=0) for arm in arms)
    return ours / plain


@pytest.mark.alone
@pytest.mark.parametrize("variant", ["eagle3-as-swept", "eagle3-as-single-stream"])
def test_the_rehearsal_measures_what_is_true_of_its_worlds(rehearsed, variant: str):
    workflow, campaign = rehearsed
    levels = {level["concurrency"]: level for level in verdict(workflow, variant)["levels"]}
    assert list(levels) == [1, 10]
    for concurrency, level in levels.items():
        truth = true_ratio(campaign, variant, concurrency)
        assert level["ratio"] == pytest.approx(truth, rel=0.2)
        assert level["label"] != ("-" if truth > 1 else "+")


@pytest.mark.alone
def test_a_draft_that_is_behind_everywhere_is_found_to_be(rehearsed):
    assert verdict(rehearsed[0], "eagle3-as-swept")["verdict"] == "baseline_faster_throughout"


@pytest.mark.alone
def test_a_draft_that_is_even_at_one_and_behind_beyond_is_not_found_ahead(rehearsed):
    """Answers of 16 tokens leave nothing of the lead that 512 tokens give."""
    workflow, campaign = rehearsed
    assert true_ratio(campaign, "eagle3-as-single-stream", 1) == pytest.approx(1, abs=0.02)
    found = verdict(workflow, "eagle3-as-single-stream")
    assert found["levels"][-1]["label"] == "-"
    assert found["verdict"] in ("inconclusive", "baseline_faster_throughout")


@pytest.mark.alone
def test_the_rehearsal_says_on_its_page_what_it_is(rehearsed):
    page = (rehearsed[0].folder / "reports/crossover.html").read_text()
    assert "Rehearsal on the simulated engine." in page


def test_the_worlds_of_the_rehearsal_have_the_figures_that_they_are_fitted_to():
    path = ROOT / "config/campaigns/kimi-rehearsal.yaml"
    campaign = load_campaign(read_yaml(path), path.name, root=ROOT)
    arms = {name: settings(variant) for name, variant in campaign.variants.items()}
    tokens = campaign.workloads["code"].max_tokens

    def throughput(name: str, level: int) -> float:
        return true_throughput(arms[name], level, tokens, prompt_tokens=0)

    assert throughput("plain", 1) == pytest.approx(92.6, abs=0.1)
    assert throughput("plain", 250) == pytest.approx(773, abs=1)
    assert throughput("eagle3-as-single-stream", 1) == pytest.approx(96.1, abs=0.1)
    for name in ("eagle3-as-swept", "eagle3-as-single-stream"):
        assert throughput(name, 250) == pytest.approx(354, abs=1)
    assert true_crossovers(arms["plain"], arms["eagle3-as-swept"], tokens, 0) == []
    (crossing,) = true_crossovers(arms["plain"], arms["eagle3-as-single-stream"], tokens, 0)
    assert crossing == pytest.approx(1.45, abs=0.01)
