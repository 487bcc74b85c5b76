"""`--config compare=…`: results that exist, from this working directory and others, on one page."""

from __future__ import annotations

from pathlib import Path

from integration.workflow_copy import Workflow, planned

TARGET = "reports/compare.html"


def test_results_of_two_working_directories_are_compared_and_nothing_is_measured(
    workflow: Workflow, tmp_path: Path
):
    other = workflow.copied_to(tmp_path / "elsewhere")
    results = other.folder / "results/test"
    # a campaign of which everything would be due
    workflow.write_config(epoch=2)
    compare = ("--config", f"compare=results/test {results}")
    assert planned(workflow.run("-n", TARGET, *compare).stdout) == {"compare_campaigns": 1}
    workflow.run("-c1", *compare)
    page = (workflow.folder / TARGET).read_text()
    assert "Both hold the same 4 sessions" in page
    assert planned(workflow.run("-n", *compare).stdout) == {}
    verdicts = results / "verdicts.json"
    verdicts.write_text(verdicts.read_text() + "\n")
    assert planned(workflow.run("-n", *compare).stdout) == {"compare_campaigns": 1}


def test_a_file_that_names_folders_alone_is_enough(workflow: Workflow, tmp_path: Path):
    other = workflow.copied_to(tmp_path / "elsewhere")
    (workflow.folder / "both.yaml").write_text(
        f"compare: [results/test, {other.folder}/results/test]\n"
    )
    done = workflow.run("-n", "--configfile", "both.yaml")
    assert planned(done.stdout) == {"compare_campaigns": 1}


def test_without_results_to_compare_it_says_in_a_sentence_what_to_name(workflow: Workflow):
    for config, said in (
        ((), "two or more different folders that hold the results of a campaign each, as in"),
        (
            ("--config", "compare=results/test results/none"),
            "there is no results/none/points.parquet",
        ),
    ):
        done = workflow.run("-c1", TARGET, *config, check=False)
        assert done.returncode != 0
        assert said in done.stdout
        assert "Traceback" not in done.stdout
