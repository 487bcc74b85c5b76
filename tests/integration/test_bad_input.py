"""A user's mistake is told in one sentence, before any server starts, and touches nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from integration.workflow_copy import ROOT, Workflow


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    return Workflow.fresh(tmp_path_factory.mktemp("bad") / "workflow")


def put(config: dict[str, Any], path: str, value: Any) -> None:
    *folders, last = path.split(".")
    for folder in folders:
        config = config.setdefault(folder, {})
    config[last] = value


MISTAKES = [
    ("variants.spec.argz", {}, ["config/config.yaml", "'argz'", "did you mean 'args'?"]),
    ("variants.spec.engine", "vlm", ["variants.spec.engine", "'vlm'", "llamacpp"]),
    ("variants.a/b", {}, ["'a/b'", "letters, digits"]),
    ("baseline", "plane", ["'plane'", "did you mean 'plain'?", "spec"]),
    ("load.concurrency", [], ["load.concurrency", "[]"]),
    ("load.concurrency", [1, 1], ["load.concurrency", "[1, 1]"]),
    ("load.concurrency", [0], ["load.concurrency", "0"]),
    ("load.concurrency", [1.5], ["load.concurrency", "1.5"]),
    ("workloads.chat.prompts", "config/none.jsonl", ["workloads.chat.prompts", "none.jsonl"]),
    ("workloads.chat.prompts", "config/empty.jsonl", ["workloads.chat.prompts", "no prompts"]),
    ("workloads.chat.prompts", "config/bad.jsonl", ["workloads.chat.prompts", "line 2", "hello"]),
    ("workloads.chat.max_tokens", 0, ["workloads.chat.max_tokens", "0"]),
    ("model.path", "models/none.gguf", ["models/none.gguf"]),
    ("variants.spec.env", {"HF_TOKEN": "abc123"}, ["HF_TOKEN", "${HF_TOKEN}"]),
    ("variants.spec.args.drafted", 3, ["variants.spec", "drafted"]),
]


@pytest.mark.parametrize(
    ("key", "value", "said"), MISTAKES, ids=[f"{m[0]}={m[1]}" for m in MISTAKES]
)
def test_a_mistake_in_the_config_is_refused(fresh: Workflow, tmp_path: Path, key, value, said):
    workflow = fresh.copied_to(tmp_path / "workflow")
    (workflow.folder / "config/empty.jsonl").write_text("\n")
    (workflow.folder / "config/bad.jsonl").write_text('{"prompt": "fine"}\nhello\n')
    put(workflow.config, key, value)
    workflow.write_config()
    done = workflow.run("-c1", check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stdout
    for words in said:
        assert words in done.stdout, done.stdout
    assert "abc123" not in done.stdout
    assert not list((workflow.folder / "results").rglob("handle.json"))
    assert not list((workflow.folder / "results").rglob("*.jsonl"))


@pytest.mark.parametrize("text", ["a: [1\nb: {", "- just\n- a list\n", ""])
def test_a_config_that_is_no_campaign_is_refused(fresh: Workflow, tmp_path: Path, text: str):
    workflow = fresh.copied_to(tmp_path / "workflow")
    (workflow.folder / "config/config.yaml").write_text(text)
    done = workflow.run("-n", check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stdout
    assert "onfig" in done.stdout


def test_an_absent_config_is_refused(fresh: Workflow, tmp_path: Path):
    workflow = fresh.copied_to(tmp_path / "workflow")
    (workflow.folder / "config/config.yaml").unlink()
    done = workflow.run("-n", check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stdout
    assert "config/config.yaml" in done.stdout


@pytest.mark.parametrize("target", ["report", "plan", "unused"])
def test_make_says_in_one_line_that_there_is_no_such_campaign_file(target: str):
    done = subprocess.run(
        ["make", "--no-print-directory", target, "CAMPAIGN=nope.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "there is no campaign file nope.yaml" in line


def test_an_engine_that_is_not_installed_is_refused_before_anything_starts(
    fresh: Workflow, tmp_path: Path
):
    workflow = fresh.copied_to(tmp_path / "workflow")
    (workflow.folder / "model.gguf").write_bytes(b"GGUF")
    workflow.config["model"]["path"] = "model.gguf"
    workflow.config["variants"]["spec"] = {
        "engine": "llamacpp",
        "binary": "/nowhere/llama-server",
        "args": {"memory-ms": None, "overhead-ms": None, "compute-ms-per-token": None},
    }
    workflow.write_config()
    done = workflow.run("-c1", check=False)
    assert done.returncode != 0
    assert "variants.spec" in done.stdout
    assert "/nowhere/llama-server" in done.stdout
    assert "Traceback" not in done.stdout
    assert not list((workflow.folder / "results").rglob("handle.json"))


def test_a_missing_secret_is_named_before_anything_starts(fresh: Workflow, tmp_path: Path):
    workflow = fresh.copied_to(tmp_path / "workflow")
    workflow.config["variants"]["spec"]["env"] = {"HF_TOKEN": "${CROSSOVER_NO_SUCH_TOKEN}"}
    workflow.write_config()
    done = workflow.run("-c1", check=False)
    assert done.returncode != 0
    assert "export CROSSOVER_NO_SUCH_TOKEN" in done.stdout
    assert not list((workflow.folder / "results").rglob("handle.json"))
    note = "note: variants.spec: ${CROSSOVER_NO_SUCH_TOKEN} is not set"
    dry_run = workflow.run("-n")
    assert dry_run.stdout.count(note) == 1
    cost = subprocess.run(
        [sys.executable, "workflow/scripts/plan.py", "config/config.yaml"],
        cwd=workflow.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert note in cost.stdout
