"""One command gives a verdict from result files, by the real workflow."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from integration.workflow_copy import ROOT, Workflow

DATA = ROOT / "tests/data"
EVERYTHING = {"import_points": 1, "find_crossover": 1, "render_report": 1}
TARGET = ("-c1", "reports/crossover.html", "--configfile", "imported.yaml")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A copy in which SGLang's files were imported once."""
    workflow = Workflow.fresh(tmp_path_factory.mktemp("imports") / "workflow")
    shutil.copy2(ROOT / "config/campaigns/imported.yaml", workflow.folder)
    shutil.copytree(DATA / "imports/sglang_glm47flash", workflow.folder / "files")
    assert workflow.plan(*TARGET, "--config", "imports=files") == EVERYTHING
    workflow.run(*TARGET, "--config", "imports=files")
    return workflow


@pytest.fixture
def workflow(imported: Workflow, tmp_path: Path) -> Workflow:
    return imported.copied_to(tmp_path / "workflow")


def test_the_lock_of_a_killed_import_is_dropped(workflow: Workflow):
    locks = workflow.folder / ".snakemake/locks"
    locks.mkdir(parents=True, exist_ok=True)
    (locks / "0.output.lock").write_text("results/imported/points.parquet\n")
    workflow.run(*TARGET, "--config", "imports=files")
    assert not list(locks.glob("*.lock"))


def test_result_files_give_a_report(imported: Workflow):
    verdicts = json.loads((imported.folder / "results/imported/verdicts.json").read_text())
    verdict = verdicts["verdicts"][0]
    assert (verdict["variant"], verdict["baseline"]) == ("eagle3", "baseline")
    assert verdict["verdict"] == "inconclusive"
    assert [level["concurrency"] for level in verdict["levels"]] == [1, 8, 32]
    page = (imported.folder / "reports/crossover.html").read_text()
    assert "One trial only" in page
    assert "mem_fraction_static 0.8 instead of 0.85" in page
    assert "--config imports=files" in page


def test_a_second_run_has_nothing_to_do(imported: Workflow):
    assert not imported.plan(*TARGET, "--config", "imports=files")


def test_an_edited_file_is_imported_again(workflow: Workflow):
    edited = workflow.folder / "files/eagle3_c8.json"
    result = json.loads(edited.read_text()) | {"output_throughput": 400.0}
    edited.write_text(json.dumps(result))
    assert workflow.plan(*TARGET, "--config", "imports=files") == EVERYTHING


def test_a_removed_file_is_seen(workflow: Workflow):
    (workflow.folder / "files/eagle3_c8.json").unlink()
    assert workflow.plan(*TARGET, "--config", "imports=files") == EVERYTHING


def test_a_table_with_a_chosen_baseline(workflow: Workflow):
    table = DATA / "tables/sglang22246_autospec_static_matrix_nobaseline.csv"
    refused = workflow.run(*TARGET, "--config", f"imports={table}", check=False)
    assert refused.returncode != 0
    assert "Traceback" not in refused.stdout
    assert "found: static_1_1_2, static_2_1_3" in refused.stdout
    (said,) = {line for line in refused.stdout.splitlines() if "baseline=static_1_1_2" in line}
    words = said.split()
    workflow.run(*TARGET, *words[words.index("--config") :])
    verdicts = json.loads((workflow.folder / "results/imported/verdicts.json").read_text())
    assert {v["baseline"] for v in verdicts["verdicts"]} == {"static_1_1_2"}


@pytest.mark.parametrize(
    ("imports", "said"),
    [
        ((), "imports: None is not of type 'string'"),
        (("--config", "imports=nowhere"), "imports: there is no 'nowhere'"),
        (("--config", "imports=Snakefile"), "SGLang bench_serving, guidellm, aiperf: not JSON"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(workflow: Workflow, imports: tuple[str, ...], said: str):
    done = workflow.run(*TARGET, *imports, check=False)
    assert done.returncode != 0
    assert said in done.stdout
    assert "Traceback" not in done.stdout
