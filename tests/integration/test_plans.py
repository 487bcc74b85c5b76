"""What an edit re-measures: exactly what it changes, and nothing else."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import yaml
from integration.workflow_copy import CAMPAIGN, Workflow

SUMMARY = {"summarise_points": 1, "find_crossover": 1, "render_report": 1}
ONE_SESSION = {"start_server": 1, "check_health": 1, "stop_server": 1}


def sessions(count: int) -> dict[str, int]:
    return {rule: count * jobs for rule, jobs in ONE_SESSION.items()}


def test_a_fresh_clone_plans_everything(tmp_path: Path):
    workflow = Workflow.fresh(tmp_path / "workflow")
    assert workflow.plan() == {**sessions(4), "measure_point": 16, **SUMMARY}


def test_a_second_run_has_nothing_to_do(workflow: Workflow):
    assert not workflow.plan()
    assert not workflow.plan("reports/crossover.html")


def test_a_flag_of_one_variant_remeasures_that_variant_and_back_finds_the_old_results(
    workflow: Workflow,
):
    workflow.config["variants"]["spec"]["args"]["acceptance"] = 0.6
    workflow.write_config()
    expected = {**sessions(2), "measure_point": 8, **SUMMARY}
    assert workflow.plan() == expected
    assert "variant=plain" not in workflow.run("-n").stdout.replace(
        "variant: plain", "variant=plain"
    )
    workflow.config["variants"]["spec"]["args"]["acceptance"] = 0.7
    workflow.write_config()
    assert not workflow.plan()


def test_an_added_level_is_one_session_each_and_only_that_level(workflow: Workflow):
    workflow.config["load"]["concurrency"] = [1, 2, 4]
    workflow.write_config()
    assert workflow.plan() == {**sessions(4), "measure_point": 8, **SUMMARY}


def test_a_removed_level_measures_nothing(workflow: Workflow):
    workflow.config["load"]["concurrency"] = [1]
    workflow.write_config()
    assert workflow.plan() == SUMMARY


def test_a_removed_workload_measures_nothing(workflow: Workflow):
    workflow.config["workloads"].pop("code")
    workflow.write_config()
    assert workflow.plan() == SUMMARY


def test_results_of_other_settings_are_never_written_over(workflow: Workflow):
    before = {p: (p / "point.json").read_bytes() for p in workflow.points("code/*/*")}
    workflow.config["workloads"]["code"]["max_tokens"] = 6
    workflow.write_config()
    workflow.run("-c1", "reports/crossover.html")
    workflow.run("-c1", "-F", "reports/crossover.html")
    for point, content in before.items():
        assert (point / "point.json").read_bytes() == content


def test_an_added_trial_is_a_session_of_every_variant(workflow: Workflow):
    workflow.config["load"]["trials"] = 3
    workflow.write_config()
    assert workflow.plan() == {**sessions(2), "measure_point": 8, **SUMMARY}


def test_a_deleted_file_of_a_point_remeasures_that_point(workflow: Workflow):
    for name in ("point.json", "requests.parquet", "chunks.parquet"):
        point = workflow.points("concurrency~4")[0]
        (point / name).unlink()
        assert workflow.plan() == {**sessions(1), "measure_point": 1, **SUMMARY}, name
        workflow.run("-c1", "reports/crossover.html")
        assert (point / name).exists()
        assert not workflow.plan()


def test_a_deleted_point_folder_remeasures_that_point(workflow: Workflow):
    shutil.rmtree(workflow.points("concurrency~1")[0])
    assert workflow.plan() == {**sessions(1), "measure_point": 1, **SUMMARY}


def test_an_edited_template_renders_the_report(workflow: Workflow):
    template = workflow.folder / "workflow/scripts/crossover/report/templates/page.html"
    template.write_text(template.read_text() + "\n")
    assert workflow.plan() == {"render_report": 1}


def test_edited_statistics_judge_and_render(workflow: Workflow):
    module = workflow.folder / "workflow/scripts/crossover/stats/model.py"
    module.write_text(module.read_text() + "\n")
    assert workflow.plan() == {"find_crossover": 1, "render_report": 1}


def test_an_edited_module_that_all_results_are_written_with_measures_nothing(workflow: Workflow):
    module = workflow.folder / "workflow/scripts/crossover/errors.py"
    module.write_text(module.read_text() + "\n")
    assert workflow.plan() == SUMMARY


def test_an_edited_margin_judges_and_renders(workflow: Workflow):
    workflow.write_config(analysis={"margin": 0.03})
    assert workflow.plan() == {"find_crossover": 1, "render_report": 1}


def test_an_edited_measuring_script_measures_nothing(workflow: Workflow):
    for name in ("measure_point.py", "crossover/load/client.py", "crossover/server/supervisor.py"):
        script = workflow.folder / "workflow/scripts" / name
        script.write_text(script.read_text() + "\n")
    assert not workflow.plan()


def test_comments_and_the_order_of_keys_do_nothing(workflow: Workflow):
    def turned(value):
        if isinstance(value, dict):
            return {k: turned(v) for k, v in reversed(value.items())}
        return value

    text = "# a comment\n" + yaml.safe_dump(turned(workflow.config), sort_keys=False)
    (workflow.folder / "config/config.yaml").write_text(text)
    assert not workflow.plan()


def test_an_edited_prompt_file_remeasures_its_workload(workflow: Workflow):
    prompts = workflow.folder / "config/prompts/code.jsonl"
    prompts.write_text(prompts.read_text() + '{"prompt": "one more"}\n')
    assert workflow.plan() == {**sessions(4), "measure_point": 8, **SUMMARY}


def test_another_campaign_file_stands_alone(workflow: Workflow):
    other = {**CAMPAIGN, "campaign": "other", "baseline": "only", "variants": {"only": {}}}
    (workflow.folder / "config/other.yaml").write_text(yaml.safe_dump(other))
    output = workflow.run("-n", "--configfile", "config/other.yaml").stdout
    assert "results/other/only/" in output
    assert "/plain/" not in output
    assert "/spec/" not in output


def test_an_edited_environment_file_measures_nothing(workflow: Workflow):
    env = workflow.folder / "envs/workflow.yaml"
    env.write_text(env.read_text() + "# edited\n")
    assert not workflow.plan()


def test_a_raised_epoch_measures_again(workflow: Workflow):
    workflow.config["variants"]["spec"]["epoch"] = 2
    workflow.write_config()
    assert workflow.plan() == {**sessions(2), "measure_point": 8, **SUMMARY}


def test_the_rule_graph_is_the_story(workflow: Workflow):
    graph = workflow.run("--rulegraph").stdout
    names = dict(re.findall(r'(\d+)\[label = "(\w+)"', graph))
    edges = {(names[a], names[b]) for a, b in re.findall(r"(\d+) -> (\d+)", graph)}
    story = [
        "start_server",
        "check_health",
        "measure_point",
        "stop_server",
        "summarise_points",
        "find_crossover",
        "render_report",
        "all",
    ]
    assert set(itertools.pairwise(story)) <= edges
    assert set(names.values()) == set(story)
