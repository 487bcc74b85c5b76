"""From imported runs to a campaign's tables, and the verdicts that published tables give."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from unit import foreign_files as foreign
from unit.report_fixtures import PROVENANCE

from crossover.campaign import Analysis, Campaign, load_campaign
from crossover.errors import CampaignError, ResultFileError
from crossover.imports.files import read_files, result_files
from crossover.imports.found import completed
from crossover.imports.names import choose_baseline, variant_of
from crossover.imports.tables import import_files, rows
from crossover.provenance import of_campaign
from crossover.records import POINTS, REQUESTS, SESSIONS, to_table
from crossover.report.page import render
from crossover.verdicts import judge

DATA = Path(__file__).parents[1] / "data"
THROUGHPUT = "output_throughput_tokens_per_s"


class Imported:
    """A file or folder, imported."""

    def __init__(self, path: Path, folder: Path, baseline: str | None = None, **settings: Any):
        files = {
            name: str(folder / f"{name}.parquet") for name in ("points", "requests", "sessions")
        }
        import_files(
            result_files(str(path)),
            campaign="imported",
            baseline=baseline,
            imports=str(path),
            **files,
        )
        self.points, self.requests, self.sessions = map(pd.read_parquet, files.values())
        named = {"baseline": baseline} if baseline else {}
        config = {"campaign": "imported", "imports": str(path), **named}
        self.asked = load_campaign(config, "imported.yaml")
        self.campaign: Campaign = completed(
            replace(self.asked, analysis=Analysis(**settings)), self.points, self.sessions
        )
        self.verdicts, self.policy = judge(self.points, self.sessions, self.campaign)

    def verdict(self, variant: str) -> dict[str, Any]:
        (found,) = [v for v in self.primary if v["variant"] == variant]
        return found

    @property
    def primary(self) -> list[dict[str, Any]]:
        """The verdicts on the campaign's own metric."""
        metric = self.campaign.analysis.metric
        return [v for v in self.verdicts["verdicts"] if v["metric"] == metric]

    def warnings(self, variant: str) -> str:
        """All warnings of a variant's points."""
        mine = self.points[self.points["variant"] == variant]
        return "\n".join(dict.fromkeys(w for of_point in mine["warnings"] for w in of_point))

    def report(self) -> str:
        return render(
            self.points,
            self.sessions,
            self.verdicts,
            self.policy,
            campaign=self.campaign,
            provenance=PROVENANCE,
            generated_at="now",
        )


# ------------------------------------------------------------------ published tables


RIGHT_ANSWERS = [
    # table, variant, labels under an assumed noise of 3 %, where the printed ratio passes 1
    ("qwen38_27b_fp8_vllm_mtp2", "mtp_k2", "++++?-", [(128, 256)]),
    ("cluster3261_r9700_llamacpp_mtp", "mtp_on", "+?-", [(1, 2)]),
    ("dspark3_prose_sglang_tp8", "dspark3", "++??", [(16, 32)]),
    ("glm47flash_h100pcie_sglang", "mtp_v2_steps1_specv2", "+++++", []),
    ("glm47flash_h100pcie_sglang", "eagle3_v1_steps3_topk4", "+?+??", []),
    ("glm47flash_h100pcie_sglang", "eagle3_v3_steps3_specv2", "+++++", []),
    ("glm47flash_h100pcie_sglang", "eagle3_v2_steps5_topk8", "+????", [(16, 32)]),
    ("glm47flash_h100pcie_sglang", "mtp_v1_steps3", "?????", [(1, 4), (8, 16), (16, 32)]),
    ("rdna4_gfx1201_vllm_mtp3_retest", "mtp_k3", "+-++-", [(1, 2), (2, 3), (4, 5)]),
    ("glm51_rtxpro6000_vllm_dcp1_mtp_ctx0", "mtp", "+++--+", [(4, 8), (16, 32)]),
    ("glm51_rtxpro6000_vllm_dcp8_mtp_ctx0", "mtp", "+++--??", [(4, 8), (16, 32), (32, 64)]),
    ("glm5_nvfp4_rtxpro6000_sglang_cutlass", "mtp_run2", "+++++++", []),
    ("qwen35_397b_awq_vllm_mtp2_ctx0", "mtp_k2", "++++++++", []),
    ("qwen35_397b_awq_vllm_mtp2_ctx65536", "mtp_k2", "----??++", [(32, 64)]),
    ("qwen35_397b_nvidia_nvfp4_vllm_mtp2_ctx0", "mtp_k2", "++++++++", []),
    ("llama31_8b_a40_vllm_eagle3_ngram", "eagle3_k3", "+++++", []),
    ("llama31_8b_a40_vllm_eagle3_ngram", "ngram_k3", "++++?", []),
    ("dflash_adapted_setting_b", "released_draft", "+++", []),
    ("dflash_adapted_setting_b", "adapted_draft", "+++", []),
    ("external_drafter_n8_batching", "spec_draft_n8", "---", []),
]


@pytest.mark.parametrize(("name", "variant", "labels", "passes"), RIGHT_ANSWERS)
def test_published_tables(tmp_path, name, variant, labels, passes):
    imported = Imported(DATA / f"tables/{name}.csv", tmp_path)
    verdict = imported.verdict(variant)
    assert imported.campaign.baseline.startswith("baseline")
    assert (verdict["verdict"], verdict["reasons"]) == ("inconclusive", ["single_repeat"])
    assert verdict["indicative"] == {"assumed_cv": 0.03, "labels": list(labels)}
    ratios = [(level["concurrency"], level["ratio"]) for level in verdict["levels"]]
    found = [(a, b) for (a, x), (b, y) in itertools.pairwise(ratios) if (x - 1) * (y - 1) < 0]
    assert found == passes
    falls = {c["code"] for c in verdict["caveats"]} & {"throughput_falls"}
    assert bool(falls) == (name.startswith(("glm51", "cluster", "external", "rdna4")))


@pytest.mark.parametrize(
    ("metric", "variant", "labels"),
    [
        ("decode_rate", "mtp7", "+++"),
        ("decode_rate", "dflash_2_7", "+++"),
        ("ttft", "mtp7", "+?-"),
        ("ttft", "dflash_2_7", "?--"),
    ],
)
def test_a_table_of_latencies_depends_on_the_metric(tmp_path, metric, variant, labels):
    table = DATA / "tables/mtp7_dflash_latency_only.csv"
    imported = Imported(table, tmp_path, metric=metric)
    assert imported.verdict(variant)["indicative"]["labels"] == list(labels)
    assert "columns_unused: response_p50_s" in imported.warnings(variant)
    default = Imported(table, tmp_path).verdict(variant)
    assert default["verdict"] == "not_comparable"
    assert imported.points[THROUGHPUT].isna().all()


def test_a_table_without_a_baseline_needs_one(tmp_path):
    table = DATA / "tables/sglang22246_autospec_static_matrix_nobaseline.csv"
    with pytest.raises(ResultFileError) as refused:
        Imported(table, tmp_path)
    said = str(refused.value)
    assert "static_1_1_2, static_2_1_3" in said
    assert f"--config imports={table} baseline=static_1_1_2" in said
    imported = Imported(table, tmp_path, baseline="static_2_1_3")
    assert len(imported.primary) == 6
    runs = imported.policy["workloads"][0]["runs"]
    assert runs[0]["variant"] == "autospec"
    assert runs[-1]["variant"] == "static_2_1_3"


# ------------------------------------------------------------------ result files


def test_a_folder_of_sglang_files(tmp_path):
    imported = Imported(DATA / "imports/sglang_glm47flash", tmp_path)
    assert list(imported.campaign.variants) == ["baseline", "eagle3"]
    assert set(imported.points["workload"]) == {"sharegpt-256"}
    warnings = imported.warnings("eagle3")
    assert (
        "settings_differ: mem_fraction_static 0.8 instead of 0.85; "
        "max_total_num_tokens 128395 instead of 206393; "
        "max_running_requests 48 instead of None" in warnings
    )
    assert "effective_max_running_requests 48 instead of 2048" in warnings
    assert "peak_below_average" in warnings
    assert "lengths_requested" in warnings
    assert "settings_differ" not in imported.warnings("baseline")
    caveats = {c["code"] for c in imported.verdict("eagle3")["caveats"]}
    assert "engine_version_differs" in caveats
    assert "server_not_restarted" not in caveats
    assert imported.campaign.variants["eagle3"].speculation.method == "EAGLE3"
    assert imported.campaign.variants["baseline"].speculation is None


def test_a_sweep_with_repeats_gives_a_verdict(tmp_path):
    imported = Imported(foreign.sweep(tmp_path / "sweep"), tmp_path)
    assert imported.campaign.baseline == "plain"
    assert imported.campaign.load.trials == 3
    verdict = imported.verdict("spec")
    assert verdict["verdict"] == "crossover"
    assert verdict["crossings"][0]["bracket"] == [16, 64]
    assert verdict["n_trials"] == 3
    assert "restarts_unknown" in imported.warnings("plain")
    assert set(imported.points["trial"]) == {1, 2, 3}
    assert imported.sessions["session_id"].is_unique
    assert len(imported.sessions) == 6


def test_details_become_rows_of_requests(tmp_path):
    foreign.write(tmp_path / "in/plain.json", foreign.vllm("plain", 4) | foreign.DETAILS)
    foreign.write(tmp_path / "in/spec.json", foreign.vllm("spec", 4))
    imported = Imported(tmp_path / "in", tmp_path)
    assert list(imported.requests["status"]) == ["ok", "failed", "ok"]
    assert set(imported.requests["variant"]) == {"plain"}
    assert set(imported.requests["session_id"]) == {"plain-1"}


def test_what_is_not_known_is_null_and_named(tmp_path):
    imported = Imported(DATA / "tables/qwen38_27b_fp8_vllm_mtp2.csv", tmp_path)
    point = imported.points.iloc[0]
    for column in ("ttft_s_p50", "failed", "requests", "acceptance_length", "started_at"):
        assert pd.isna(point[column])
    assert list(point["warnings"]) == [
        "not_stated: model, date, output lengths, failures, the server's description, "
        "its queue and cache"
    ]
    assert point["source"].endswith("qwen38_27b_fp8_vllm_mtp2.csv:2")
    assert imported.requests.empty
    assert imported.campaign.model.name == "not stated"


def test_a_repeat_of_other_lengths_is_remarked_on(tmp_path):
    for n, tokens in ((1, 1000), (2, 2000)):
        raw = foreign.vllm("plain", 4, total_input_tokens=tokens)
        foreign.write(tmp_path / f"in/plain_c4_run{n}.json", raw | {"duration": 1.0 + n})
    imported = Imported(tmp_path / "in", tmp_path)
    assert "repeats_differ" in imported.warnings("plain")


ODD_VALUES = (None, "x", [], [1], {}, {"a": 1}, 7, -1.5, float("nan"), True)


@pytest.mark.parametrize(
    "result",
    [
        foreign.vllm("plain", 4) | foreign.DETAILS,
        foreign.vllm("plain", 4, run_number=0),
        foreign.guidellm("plain"),
        foreign.aiperf("plain", 4),
    ],
    ids=["vllm", "sweep", "guidellm", "aiperf"],
)
def test_a_value_of_another_kind_is_missing_or_refused_in_words(tmp_path, result):
    for place in places(result):
        for odd in ODD_VALUES:
            changed = copy.deepcopy(result)
            functools.reduce(lambda part, key: part[key], place[:-1], changed)[place[-1]] = odd
            path = str(foreign.write(tmp_path / "plain_c4.json", changed))
            with contextlib.suppress(ResultFileError):
                reading = read_files([path])
                baseline = choose_baseline([run.variant for run in reading.runs], None, path)
                found = rows(reading, campaign="x", baseline=baseline)
                for table, columns in zip(found, (POINTS, REQUESTS, SESSIONS), strict=True):
                    to_table(table, columns)


def places(value: Any, above: tuple = ()) -> Iterator[tuple]:
    """Keys that lead to every object and value; of a list, its first entry."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, inner in items:
        yield (*above, key)
        if isinstance(inner, (dict, list)) and len(above) < 4:
            yield from places(inner, (*above, key))


# ------------------------------------------------------------------ arms that differ


def arms(folder: Path, **changes: Any) -> Path:
    for concurrency in (1, 4):
        foreign.write(folder / f"plain_c{concurrency}.json", foreign.vllm("plain", concurrency))
        foreign.write(
            folder / f"spec_c{concurrency}.json", foreign.vllm("spec", concurrency, **changes)
        )
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_id": "other"}, "model_name_differs: other instead of m"),
        ({"total_input_tokens": 999}, "prompt_length_differs: at concurrency 1, 4"),
    ],
)
def test_arms_that_differ_are_warned_of(tmp_path, changes, said):
    imported = Imported(arms(tmp_path / "in", **changes), tmp_path)
    assert said in imported.warnings("spec")
    assert said not in imported.warnings("plain")
    assert imported.verdict("spec")["levels"]


def test_arms_measured_with_two_tools_are_compared_with_a_warning(tmp_path):
    for concurrency in (1, 4):
        foreign.write(
            tmp_path / f"in/plain_c{concurrency}.json", foreign.vllm("plain", concurrency)
        )
        foreign.write(
            tmp_path / f"in/spec_c{concurrency}.json", foreign.aiperf("spec", concurrency)
        )
    imported = Imported(tmp_path / "in", tmp_path)
    assert "tool_differs: aiperf instead of vllm bench serve" in imported.warnings("spec")
    assert len(imported.verdict("spec")["levels"]) == 2


@pytest.mark.parametrize("tool", ["aiperf", "guidellm"])
def test_files_of_real_tools_on_a_simulated_server(tmp_path, tool):
    """True crossover 24: `spec` is faster at 4 and slower at 64."""
    imported = Imported(DATA / f"imports/{tool}_simulated", tmp_path)
    verdict = imported.verdict("spec")
    assert imported.campaign.baseline == "plain"
    assert verdict["indicative"]["labels"] == ["+", "-"]
    assert "differ" not in imported.warnings("spec")
    assert "cannot tell" in imported.report()


def test_arms_alike_are_not_warned_of(tmp_path):
    assert "differ" not in Imported(arms(tmp_path / "in"), tmp_path).warnings("spec")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"date": "20261209-120000"}, "arms_not_contemporaneous"),
        ({"total_output_tokens": 8 * 500}, "output_length_differs"),
    ],
)
def test_dates_and_output_lengths_are_caveats_of_the_verdict(tmp_path, changes, code):
    imported = Imported(arms(tmp_path / "in", **changes), tmp_path)
    assert code in {c["code"] for c in imported.verdict("spec")["caveats"]}


def test_dates_count_only_where_every_file_has_one(tmp_path):
    imported = Imported(arms(tmp_path / "in", date=None), tmp_path)
    assert imported.sessions["started_at"].isna().all()
    assert "arms_not_contemporaneous" not in {
        c["code"] for c in imported.verdict("spec")["caveats"]
    }


WORKLOADS = "config,concurrency,throughput_tok_s,workload\n"


def test_workloads_of_both_arms_are_judged_one_by_one(tmp_path):
    rows = [f"{v},{c},{100 * c},{w}\n" for v in ("plain", "spec") for c in (1, 2) for w in "ab"]
    imported = Imported(foreign.write(tmp_path / "x.csv", WORKLOADS + "".join(rows)), tmp_path)
    assert [v["workload"] for v in imported.primary] == ["a", "b"]
    assert set(imported.points["trial"]) == {1}


def test_another_workload_than_the_baselines_is_compared_with_a_warning(tmp_path):
    rows = [f"{v},{c},{100 * c},{w}\n" for v, w in (("plain", "a"), ("spec", "b")) for c in (1, 2)]
    imported = Imported(foreign.write(tmp_path / "x.csv", WORKLOADS + "".join(rows)), tmp_path)
    assert set(imported.points["workload"]) == {"a"}
    assert "workload_differs: b instead of a" in imported.warnings("spec")
    assert len(imported.verdict("spec")["levels"]) == 2


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("path", "variant"),
    [
        ("eagle3_c8.json", "eagle3"),
        ("eagle3-conc16-run2.json", "eagle3"),
        ("mtp_v2_steps1_max_concurrency=32.json", "mtp_v2_steps1"),
        ("eagle3/c8.json", "eagle3"),
        ("eagle3/benchmarks.json", "eagle3"),
        ("eagle3_c8/profile_export_aiperf.json", "eagle3"),
        ("plain/openai-infqps-concurrency8-Llama-3.1-8B-20261202-120000.json", "plain"),
        ("plain/sglang-oai-chat_1202_64_sharegpt.jsonl", "plain"),
        ("spec3.2.json", "spec3.2"),
        ("c_plus_8.json", "c_plus_8"),
    ],
)
def test_a_files_name_says_its_variant(path, variant):
    assert variant_of(Path("/x") / path) == variant


@pytest.mark.parametrize(
    ("names", "wanted", "chosen"),
    [
        (["mtp", "baseline"], None, "baseline"),
        (["mtp", "baseline_mtp_off"], None, "baseline_mtp_off"),
        (["plain", "spec-3"], None, "plain"),
        (["no-spec", "spec"], None, "no-spec"),
        (["a", "b"], "b", "b"),
        (["a"], None, "a"),
        (["baseline", "plain"], "plain", "plain"),
    ],
)
def test_the_baseline_is_the_one_that_is_named(names, wanted, chosen):
    assert choose_baseline(names, wanted, "x") == chosen


@pytest.mark.parametrize(
    ("names", "wanted", "said"),
    [
        (["a", "b"], None, "names do not say which variant is the baseline; found: a, b"),
        (["baseline", "plain"], None, "names do not say"),
        (["baseline", "mtp"], "plane", "baseline: 'plane' is no variant"),
        (["it's", "b"], None, "imports='my files' baseline='it'\"'\"'s'"),
    ],
)
def test_names_that_do_not_decide_say_which_command_does(names, wanted, said):
    with pytest.raises(ResultFileError) as refused:
        choose_baseline(names, wanted, "my files")
    assert said in str(refused.value)


# ------------------------------------------------------------------ campaign and report


def test_comparisons_of_variants_that_the_files_do_not_have(tmp_path):
    with pytest.raises(CampaignError, match="'mtp' is no variant of these files; found: plain"):
        Imported(arms(tmp_path / "in"), tmp_path, compare=(("mtp", "plain"),))


def test_a_campaign_that_imports_takes_nothing_else():
    config = {"campaign": "x", "imports": "x.csv", "load": {"concurrency": [1]}}
    with pytest.raises(CampaignError, match="'load' is not one of"):
        load_campaign(config, "x.yaml")
    with pytest.raises(CampaignError, match=r"imports: None .*--config imports=PATH"):
        load_campaign({"campaign": "x", "imports": None}, "x.yaml")


def test_a_campaign_that_measures_stays_as_it_is(tmp_path):
    imported = Imported(arms(tmp_path / "in"), tmp_path)
    measured = replace(imported.campaign, imports=None)
    assert completed(measured, imported.points, imported.sessions) is measured


def test_the_report_says_what_is_imported(tmp_path):
    foreign.write(tmp_path / "in/open.json", foreign.vllm("plain", 4, max_concurrency=None))
    page = Imported(arms(tmp_path / "in"), tmp_path).report()
    assert "Nothing was measured here" in page
    assert "left out of the import:" in page
    assert "without a cap on requests in flight – all points" in page
    assert "import three runs or more of every level" in page
    assert "Imported: its name is all that the files say" in page
    assert "load.trials" not in page


def test_one_variant_alone_has_no_verdict_but_a_report(tmp_path):
    foreign.write(tmp_path / "in/plain.json", foreign.vllm("plain", 4))
    imported = Imported(tmp_path / "in", tmp_path)
    assert imported.verdicts["verdicts"] == []
    assert "Only plain was measured" in imported.report()


def test_the_command_and_the_dates_of_an_import_are_its_provenance(tmp_path):
    imported = Imported(arms(tmp_path / "my files"), tmp_path)

    sessions = pa.Table.from_pandas(imported.sessions)
    found = of_campaign(imported.campaign, sessions, "config/campaigns/imported.yaml")
    assert found["commands"][0].endswith(
        f"--configfile config/campaigns/imported.yaml --config imports='{tmp_path / 'my files'}' "
        "baseline=plain"
    )
    assert [date[:10] for date in found["dates"]] == ["2026-12-02", "2026-12-02"]
    assert found["hosts"] == []
