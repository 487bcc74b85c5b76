"""What is read of each format, and what is refused with which reason."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from unit import foreign_files as foreign

from crossover.errors import ResultFileError
from crossover.imports.document import Document
from crossover.imports.files import FORMATS, read_files, result_files
from crossover.imports.run import Run

DATA = Path(__file__).parents[1] / "data"
SGLANG = DATA / "imports/sglang_glm47flash"
THROUGHPUT = "output_throughput_tokens_per_s"


def runs_of(folder: Path) -> list[Run]:
    return read_files(result_files(str(folder))).runs


def only(path: Path, content: Any) -> Run:
    (run,) = runs_of(foreign.write(path, content))
    return run


def codes(run: Run) -> set[str]:
    return {warning.partition(":")[0] for warning in run.warnings}


# ------------------------------------------------------------------ SGLang


def test_sglang_bench_serving():
    run = only_file(SGLANG / "eagle3_c8.json")
    raw = json.loads((SGLANG / "eagle3_c8.json").read_text())
    assert raw["request_rate"] == math.inf
    assert (run.variant, run.concurrency, run.tool) == ("eagle3", 8, "SGLang bench_serving")
    assert run.figures[THROUGHPUT] == raw["output_throughput"]
    assert run.figures["ttft_s_p50"] == raw["median_ttft_ms"] / 1000
    assert run.figures["tpot_s_p99"] == raw["p99_tpot_ms"] / 1000
    assert run.figures["e2e_s_p90"] == raw["p90_e2e_latency_ms"] / 1000
    assert run.figures["acceptance_length"] == raw["accept_length"]
    assert run.figures["output_tokens_mean"] == 256
    assert "failed" not in run.figures  # the tool does not count them
    assert run.asked == {"dataset_name": "sharegpt", "sharegpt_output_len": 256}
    assert run.server["speculation_method"] == "EAGLE3"
    assert run.settings["effective_max_running_requests"] == 48
    assert {"peak_below_average", "lengths_requested", "whole_run"} <= codes(run)
    assert "few_requests" not in codes(run)


def only_file(path: Path) -> Run:
    (run,) = read_files([str(path)]).runs
    return run


def test_sglang_two_waves_at_a_level_are_remarked_on():
    assert {"few_requests", "concurrency_below_level"} <= codes(
        only_file(SGLANG / "eagle3_c32.json")
    )


def test_sglang_lines_are_runs_with_their_tags(tmp_path):
    raw = json.loads((SGLANG / "baseline_c1.json").read_text()) | {"server_info": None}
    lines = [raw | {"tag": tag, "max_concurrency": c} for tag in ("a", "b") for c in (1, 2)]
    text = "\n".join(json.dumps(line) for line in lines)
    found = runs_of(foreign.write(tmp_path / "all.jsonl", text))
    assert [(run.variant, run.concurrency) for run in found] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
        ("b", 2),
    ]
    assert found[1].source.endswith("all.jsonl:2")
    assert found[0].server == {}


def test_a_copy_of_a_file_is_no_repeat(tmp_path):
    raw = (SGLANG / "baseline_c1.json").read_text()
    foreign.write(tmp_path / "plain_c1.json", raw)
    foreign.write(tmp_path / "plain_c1_run2.json", raw)
    reading = read_files(result_files(str(tmp_path)))
    assert len(reading.runs) == 1
    assert reading.not_levels == {
        str(tmp_path / "plain_c1_run2.json"): f"the same run as in {tmp_path / 'plain_c1.json'}"
    }


def test_secrets_of_a_server_are_left_out(tmp_path):
    raw = json.loads((SGLANG / "baseline_c1.json").read_text())
    raw["server_info"] |= {"api_key": "sk-1", "internal_states": [{"admin_api_key": "sk-2"}]}
    said = only(tmp_path / "plain_c1.json", raw).server["description"]
    assert "sk-" not in said
    assert json.loads(said)["resolved"]["attention_backend"]


# ------------------------------------------------------------------ vLLM


def test_vllm_bench_serve(tmp_path):
    run = only(
        tmp_path / "x.json",
        foreign.vllm(
            "spec",
            4,
            mean_e2el_ms=990.0,
            spec_decode_acceptance_rate=50.0,
            spec_decode_acceptance_length=2.5,
            spec_decode_num_drafts=100,
            spec_decode_draft_tokens=300,
            spec_decode_accepted_tokens=150,
            spec_decode_per_position_acceptance_rates=[0.8, 0.5, 0.2],
            total_output_tokens=250,
        ),
    )
    assert (run.variant, run.concurrency, run.no_level) == ("spec", 4, None)
    figures = run.figures
    assert figures[THROUGHPUT] == 500
    assert (figures["completed"], figures["failed"], figures["error_share"]) == (32, 0, 0)
    assert (figures["ttft_s_mean"], figures["ttft_s_p50"], figures["ttft_s_p99"]) == (
        0.05,
        0.04,
        0.09,
    )
    assert "ttft_s_p90" not in figures
    assert figures["decode_rate_tokens_per_s"] == pytest.approx(125)
    assert figures["achieved_concurrency"] == pytest.approx(0.99 * 500 / 128)
    assert figures["acceptance_rate"] == 0.5
    assert figures["tokens_per_step"] == 2.5
    assert figures["accepted_per_position"] == [0.8, 0.5, 0.2]
    assert figures["started_at"] == pytest.approx(1796212800 - 32 * 128 / 500)
    assert run.requests == ()


def test_vllm_details_become_requests(tmp_path):
    run = only(tmp_path / "x.json", foreign.vllm("plain", 1) | foreign.DETAILS)
    first, failed, last = run.requests
    assert (first["sent_s"], first["first_token_s"], first["last_token_s"]) == (10, 10.25, 10.625)
    assert (first["status"], first["chunks"], first["output_tokens"]) == ("ok", 3, 3)
    assert (failed["status"], failed["error_message"]) == ("failed", "Traceback: 503")
    assert failed["first_token_s"] is None
    assert failed["output_tokens"] is None
    assert last["prompt_tokens"] == 250


def test_vllm_details_without_start_times_have_no_times(tmp_path):
    details = {k: v for k, v in foreign.DETAILS.items() if k != "start_times"}
    run = only(tmp_path / "x.json", foreign.vllm("plain", 1) | details)
    assert [r["first_token_s"] for r in run.requests] == [None] * 3
    assert run.requests[0]["output_tokens"] == 3


def test_older_vllm_files_do_not_count_failures(tmp_path):
    older = foreign.vllm("plain", 4, num_prompts=40)
    del older["failed"]
    run = only(tmp_path / "x.json", older)
    assert run.figures["failed"] == 8
    assert run.invalid_reasons == ("errors",)


def test_vllm_sweep_counts_every_run_once_and_no_warmup(tmp_path):
    found = runs_of(foreign.sweep(tmp_path / "sweep"))
    assert len(found) == 2 * 4 * 3
    assert {run.variant for run in found} == {"plain", "spec"}
    assert {run.trial for run in found} == {1, 2, 3}
    assert {run.tool for run in found} == {"vllm bench sweep"}
    assert min(run.figures[THROUGHPUT] for run in found) == 100


def test_a_sweeps_table_alone_names_variants_by_the_servers_parameters(tmp_path):
    table = foreign.sweep(tmp_path / "sweep") / "summary.csv"
    found = read_files([str(table)]).runs
    assert len(found) == 24
    assert {run.variant for run in found} == {"sweep", "spec-tokens=3"}
    assert {run.concurrency for run in found} == {1, 4, 16, 64}


# ------------------------------------------------------------------ guidellm, aiperf


def test_guidellm(tmp_path):
    report = foreign.guidellm(
        "spec",
        poisson={"type_": "poisson", "rate": 3.0},
        throughput={"type_": "throughput", "max_concurrency": None},
    )
    path = foreign.write(tmp_path / "spec/benchmarks.json", report)
    reading = read_files([str(path)])
    found = reading.runs
    assert {run.variant for run in found} == {"spec"}
    assert [run.concurrency for run in found] == [4, 16, 64, 1]
    assert sorted(reading.not_levels.values()) == [
        "all requests at once, without a cap on requests in flight",
        "open loop, 3 requests/s without a cap on requests in flight",
    ]
    figures = found[0].figures
    assert figures[THROUGHPUT] == 500
    assert (figures["tpot_s_p50"], figures["tpot_s_p99"]) == pytest.approx((0.012, 0.036))
    assert (figures["e2e_s_p50"], figures["ttft_s_p90"]) == pytest.approx((2.5, 0.08))
    assert (figures["requests"], figures["cancelled"], figures["failed"]) == (403, 2, 1)
    assert figures["error_share"] == pytest.approx(1 / 401)
    assert found[0].server == {"model_name": "m"}
    assert "sk-1" not in str(found)


def test_aiperf_as_it_writes():
    runs = runs_of(DATA / "imports/aiperf_simulated")
    assert {(run.variant, run.concurrency) for run in runs} == {
        (variant, concurrency) for variant in ("plain", "spec") for concurrency in (4, 64)
    }
    assert {tuple(run.asked.items()) for run in runs} == {
        (("dataset", "synthetic"), ("isl", 64.0), ("osl", 24.0))
    }
    assert {run.figures["output_tokens_mean"] for run in runs} == {24}
    assert {run.figures["failed"] for run in runs} == {0}
    for run in runs:
        tokens_per_s = run.figures["completed"] * 24 / run.figures["load_s"]
        assert run.figures[THROUGHPUT] == pytest.approx(tokens_per_s, rel=0.01)
        assert run.figures["ttft_s_p50"] < run.figures["e2e_s_p50"] < 1.1


def test_guidellm_as_it_writes():
    runs = runs_of(DATA / "imports/guidellm_simulated")
    assert [(run.variant, run.concurrency) for run in runs] == [
        (variant, concurrency) for variant in ("plain", "spec") for concurrency in (4, 64)
    ]
    assert {tuple(run.asked.items()) for run in runs} == {
        (("kind", "synthetic_text"), ("prompt_tokens", 64), ("output_tokens", 24))
    }
    raw = json.loads((DATA / "imports/guidellm_simulated/spec/benchmarks.json").read_text())
    rates = raw["benchmarks"][1]["metrics"]["output_tokens_per_second"]
    # a run of 4 s ended by the clock: 7 % of the tokens are of requests that it cut off
    assert runs[3].figures[THROUGHPUT] == pytest.approx(rates["total"]["mean"])
    assert rates["successful"]["mean"] < 0.94 * rates["total"]["mean"]
    assert runs[3].figures["cancelled"] == 58
    assert runs[3].figures["output_tokens_mean"] == 24
    assert {run.server["model_name"] for run in runs} == {"simulated"}
    request = runs[0].requests[0]
    assert (request["status"], request["output_tokens"]) == ("ok", 24)
    assert request["sent_s"] < request["first_token_s"] < request["last_token_s"] < request["end_s"]
    assert [r["status"] for r in runs[0].requests] == ["ok", "ok", "cancelled", "cancelled"]


@pytest.mark.parametrize(
    "load",
    [
        {},
        {"input_config": {"loadgen": {"concurrency": 16}, "endpoint": {"model_names": ["m"]}}},
    ],
    ids=["phases", "loadgen of older versions"],
)
def test_aiperf(tmp_path, load):
    path = tmp_path / "spec_c16/profile_export_aiperf.json"
    run = only(path, foreign.aiperf("spec", 16, **load))
    assert (run.variant, run.concurrency) == ("spec", 16)
    assert run.figures[THROUGHPUT] == 950
    assert run.figures["tpot_s_p50"] == pytest.approx(0.012)
    assert run.figures["achieved_concurrency"] == pytest.approx(16)
    assert (run.figures["completed"], run.figures["failed"]) == (128, 0)
    assert run.server == {"model_name": "m"}


def test_aiperf_run_that_did_not_end_is_invalid(tmp_path):
    run = only(tmp_path / "spec.json", foreign.aiperf("spec", 4, was_cancelled=True))
    assert run.invalid_reasons == ("run_incomplete",)


# ------------------------------------------------------------------ CSV


def test_csv_with_latencies_trials_and_columns_that_are_not_used(tmp_path):
    text = (
        "config, concurrency, throughput_tok_s, trial, ttft_p50_ms, gpu\n"
        "plain,4,100.5,2,40,H100\n\nspec,4,nan,1,,H100\n"
    )
    plain, spec = runs_of(foreign.write(tmp_path / "x.csv", "\ufeff" + text))
    assert (plain.variant, plain.concurrency, plain.trial) == ("plain", 4, 2)
    assert plain.figures == {THROUGHPUT: 100.5, "ttft_s_p50": 0.04}
    assert plain.warnings == ("columns_unused: gpu",)
    assert spec.figures == {}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("plain,many,100", r"x\.csv:2: concurrency is 'many'"),
        ("plain,0,100", r"x\.csv:2: concurrency is '0'"),
        ("plain,1,fast", r"x\.csv:2: throughput_tok_s is 'fast'"),
    ],
)
def test_csv_with_a_value_that_is_none(tmp_path, row, said):
    path = foreign.write(tmp_path / "x.csv", f"config,concurrency,throughput_tok_s\n{row}\n")
    with pytest.raises(ResultFileError, match=said):
        runs_of(path)


# ------------------------------------------------------------------ what is no level


def test_a_rate_without_a_cap_is_no_level(tmp_path):
    for name, changes in {
        "open": {"max_concurrency": None, "request_rate": 4.0},
        "flood": {"max_concurrency": None},
        "closed": {},
    }.items():
        foreign.write(tmp_path / f"{name}.json", foreign.vllm("plain", 4, **changes))
    reading = read_files(result_files(str(tmp_path)))
    assert [run.source for run in reading.runs] == [str(tmp_path / "closed.json")]
    assert reading.not_levels == {
        str(tmp_path / "flood.json"): "all requests at once, without a cap on requests in flight",
        str(tmp_path / "open.json"): "open loop, 4 requests/s without a cap on requests in flight",
    }


@pytest.mark.parametrize(
    ("latency_ms", "invalid"), [(1024.0, ()), (500.0, ("concurrency_not_held",))]
)
def test_a_rate_below_a_cap_is_a_level_only_if_the_cap_was_reached(tmp_path, latency_ms, invalid):
    run = only(
        tmp_path / "x.json", foreign.vllm("spec", 4, request_rate=4.0, mean_e2el_ms=latency_ms)
    )
    assert "rate_limited" in codes(run)
    assert run.invalid_reasons == invalid


def test_open_loops_alone_are_an_error(tmp_path):
    path = foreign.write(
        tmp_path / "x.json", foreign.vllm("plain", 4, max_concurrency=None, request_rate=4.0)
    )
    with pytest.raises(ResultFileError, match=r"no level to import\n.*open loop, 4 requests/s"):
        runs_of(path)


# ------------------------------------------------------------------ wrong files


WRONG = {
    "empty": ("", "the file is empty"),
    "text": ("hello\nworld\n", "not JSON (line 1: Expecting value)"),
    "cut off": ('{"model_id": "m", "dur', "not JSON (line 1"),
    "another object": ('{"a": 1}', "SGLang bench_serving: lacks duration, completed"),
    "another table": ("a,b\n1,2\n", "CSV: its first line lacks config, concurrency, throughput"),
    "no objects": ("[1, 2]", "JSON, but no objects"),
    "no rows": ("config,concurrency,throughput_tok_s\n", "CSV: no rows"),
    "no benchmarks": ('{"benchmarks": []}', "guidellm: no benchmarks in it"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_says_which_formats_were_tried_and_why_each_failed(tmp_path, text, said):
    with pytest.raises(ResultFileError) as refused:
        runs_of(foreign.write(tmp_path / "x.json", text))
    message = str(refused.value)
    assert said in message
    for form in FORMATS:
        assert form.name in message


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ResultFileError, match="cannot be read: not UTF-8 text"):
        runs_of(tmp_path / "x.json")


def test_what_cannot_be_read_in_a_folder_is_left_out_with_its_reason(tmp_path):
    foreign.write(tmp_path / "a/good.json", foreign.vllm("plain", 4))
    foreign.write(tmp_path / "a/empty.json", "")
    foreign.write(tmp_path / "a/notes.txt", "not looked at")
    foreign.write(tmp_path / ".cache/x.json", "not looked at")
    foreign.write(tmp_path / "a/other.json", "{}")
    reading = read_files(result_files(str(tmp_path)))
    assert len(reading.runs) == 1
    assert list(reading.unread) == [str(tmp_path / f"a/{n}.json") for n in ("empty", "other")]
    assert reading.remarks == [f"files_left_out: {tmp_path / 'a/empty.json'} and 1 more"]
    assert "a/other.json: in no format that can be imported (vllm bench sweep: lacks" in str(
        reading
    )


def test_nothing_to_read(tmp_path):
    with pytest.raises(ResultFileError, match=re.escape("there is no 'nowhere'")):
        result_files("nowhere")
    foreign.write(tmp_path / "notes.txt", "x")
    with pytest.raises(ResultFileError, match=r"ends with \.csv, \.json, \.jsonl"):
        result_files(str(tmp_path))


def test_each_format_refuses_the_files_of_the_others(tmp_path):
    files = {
        "vllm bench sweep": foreign.sweep(tmp_path / "s", 1) / "SERVE--plain-BENCH--max_concurrency=1/run=0.json",
        "vllm bench serve": foreign.write(tmp_path / "v.json", foreign.vllm("plain", 1)),
        "SGLang bench_serving": SGLANG / "baseline_c1.json",
        "guidellm": foreign.write(tmp_path / "g.json", foreign.guidellm("plain")),
        "aiperf": foreign.write(tmp_path / "a.json", foreign.aiperf("plain", 1)),
        "CSV": DATA / "tables/qwen38_27b_fp8_vllm_mtp2.csv",
    }  # fmt: skip
    for name, path in files.items():
        document = Document.load(path)
        matching = {form.name for form in FORMATS if form.mismatch(document) is None}
        # a sweep's run is a run of the benchmark with more keys; it is tried first
        assert matching - {"vllm bench serve"} == {name} - {"vllm bench serve"}
        assert name in matching
