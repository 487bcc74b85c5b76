"""The config as dataclasses, its matrix, and what its digests depend on."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.campaigns import CONFIG, campaign, config

from crossover import engines
from crossover.campaign import (
    Load,
    Steady,
    Variant,
    load_campaign,
    missing_in_shell,
    secret_names,
)
from crossover.campaign_file import read_campaign, read_yaml
from crossover.errors import CampaignError
from crossover.server import environment
from crossover.texts.fixed_length import LEAST_TOKENS


def shuffled(value, draw: random.Random):
    """The same config with the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = list(value)
        draw.shuffle(keys)
        return {k: shuffled(value[k], draw) for k in keys}
    return value


@pytest.fixture
def base(tmp_path):
    return campaign(tmp_path)


@given(st.integers(0, 10_000))
def test_no_order_of_keys_changes_a_digest(tmp_path_factory, seed):
    folder = tmp_path_factory.getbasetemp()
    one = campaign(folder)
    other = load_campaign(shuffled(CONFIG, random.Random(seed)), "test.yaml", folder)
    assert one.server_digests == other.server_digests
    assert one.point_digests == other.point_digests


@pytest.mark.parametrize(
    "change",
    [
        {"args": {"drafted-tokens": 2}},
        {"env": {"A": "2"}},
        {"devices": ["gpu0"]},
        {"epoch": 2},
    ],
)
def test_what_changes_a_server_changes_its_digest_and_no_other(tmp_path, base, change):
    variants = config()["variants"]
    variants["spec"] = {**variants["spec"], **change}
    changed = campaign(tmp_path, variants=variants)
    assert changed.server_digests["spec"] != base.server_digests["spec"]
    assert changed.server_digests["plain"] == base.server_digests["plain"]
    assert changed.point_digests == base.point_digests


@pytest.mark.parametrize(
    "change",
    [
        {"startup_timeout_s": 5},
        {"stop_grace_s": 5},
        {"speculation": {"method": "ngram", "drafted_tokens": 3}},
    ],
)
def test_what_does_not_change_a_measurement_changes_no_digest(tmp_path, base, change):
    variants = config()["variants"]
    variants["spec"] = {**variants["spec"], **change}
    assert campaign(tmp_path, variants=variants).server_digests == base.server_digests


@pytest.mark.parametrize("change", [{"max_tokens": 9}, {"temperature": 0.5}, {"ignore_eos": True}])
def test_a_workload_changes_its_points_and_no_server(tmp_path, base, change):
    workloads = config()["workloads"]
    workloads["chat"] |= change
    changed = campaign(tmp_path, workloads=workloads)
    assert changed.point_digests != base.point_digests
    assert changed.server_digests == base.server_digests


@pytest.mark.parametrize(
    ("steady", "long_s"),
    [((60, 300), 240), ((60, 100), 100), ((1, 300), 4), ((250, 300), 250), ((300, 300), 300)],
)
def test_a_long_window_is_four_times_the_least_up_to_240_s_and_the_greatest(steady, long_s):
    load = Load((1,), steady=Steady(min_s=steady[0], max_s=steady[1]))
    longer = load.with_long_windows
    assert longer == dataclasses.replace(load, steady=Steady(min_s=long_s, max_s=steady[1]))


@pytest.mark.parametrize("change", [{"ramp_s": 1}, {"steady": {"min_s": 9}}])
def test_load_settings_change_the_points(tmp_path, base, change):
    changed = campaign(tmp_path, load={**CONFIG["load"], **change})
    assert changed.point_digests != base.point_digests


@pytest.mark.parametrize("change", [{"concurrency": [1, 2]}, {"trials": 1}])
def test_levels_and_trials_are_in_no_digest(tmp_path, base, change):
    changed = campaign(tmp_path, load={**CONFIG["load"], **change})
    assert changed.point_digests == base.point_digests
    assert changed.server_digests == base.server_digests


OPEN = {key: value for key, value in CONFIG["load"].items() if key != "concurrency"} | {
    "arrivals": {"request_rate": [0.5, 2.0, 8]}
}


def test_levels_are_concurrencies_or_request_rates(tmp_path, base):
    rated = campaign(tmp_path, load=OPEN)
    assert (base.load.axis.name, base.load.levels) == ("concurrency", (1, 4, 16))
    assert (rated.load.axis.name, rated.load.levels) == ("request_rate", (0.5, 2, 8))
    assert rated.load.arrivals.process == "poisson"
    assert sorted(rated.grid) == [("chat", 0.5), ("chat", 2), ("chat", 8)]
    assert base.analysis.metric == "output_throughput"
    assert rated.analysis.metric == "decode_rate", "throughputs are equal where both keep up"


def test_a_closed_loop_that_is_said_is_the_one_that_is_not(tmp_path, base):
    said = campaign(tmp_path, load={**CONFIG["load"], "arrivals": "closed"})
    assert said == base


def test_request_rates_are_in_no_digest_and_how_requests_arrive_is(tmp_path, base):
    rated = campaign(tmp_path, load=OPEN)
    other = campaign(tmp_path, load={**OPEN, "arrivals": {"request_rate": [1]}})
    constant = campaign(
        tmp_path, load={**OPEN, "arrivals": {"request_rate": [1], "process": "constant"}}
    )
    assert rated.point_digests == other.point_digests
    assert len({str(c.point_digests) for c in (base, rated, constant)}) == 3
    assert rated.server_digests == base.server_digests


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            {"concurrency": [1]},
            "load: 'concurrency' is not allowed; load.arrivals.request_rate has",
        ),
        ({"arrivals": "open"}, r"load.arrivals: 'closed' was expected"),
        ({"arrivals": {}}, r"load.arrivals: missing key 'request_rate'"),
        ({"arrivals": {"request_rate": [0]}}, r"load.arrivals.request_rate.0: 0 is less"),
        ({"arrivals": {"request_rate": [1, 1.0]}}, r"request_rate: \[1, 1\] has non-unique"),
        ({"arrivals": {"request_rate": [1], "proces": "constant"}}, "did you mean 'process'"),
        (
            {"arrivals": {"request_rate": [0.01]}, "steady": {"max_s": 300}},
            "at 0.01 requests/s a window of at most 300 s .* sees 3 of the 20 answers",
        ),
        ({"arrivals": {"request_rate": [1], "process": "gamma"}}, "'gamma' is not one of"),
    ],
)
def test_arrivals_that_cannot_be_meant_are_refused(tmp_path, load, message):
    with pytest.raises(CampaignError, match=message):
        campaign(tmp_path, load={**OPEN, **load})


@pytest.mark.parametrize(
    "analysis", [{"load_shares": {"1": 1}}, {"what_if": {"acceptance_length": [2]}}]
)
def test_what_takes_equal_concurrency_is_refused_at_request_rates(tmp_path, analysis):
    with pytest.raises(CampaignError, match=f"analysis.{next(iter(analysis))}: .*load.arrivals"):
        campaign(tmp_path, load=OPEN, analysis=analysis)


def test_the_content_of_a_prompt_file_counts_and_its_name_does_not(tmp_path, base):
    workloads = config()["workloads"]
    (tmp_path / "same.jsonl").write_bytes((tmp_path / "chat.jsonl").read_bytes())
    workloads["chat"]["prompts"] = "same.jsonl"
    assert load_campaign(config(workloads=workloads), "x", tmp_path).point_digests == (
        base.point_digests
    )
    (tmp_path / "same.jsonl").write_text('{"prompt": "other"}\n')
    assert load_campaign(config(workloads=workloads), "x", tmp_path).point_digests != (
        base.point_digests
    )


def test_every_trial_is_one_session_of_each_variant_and_pairs_of_trials_mirror(base):
    by_trial = {}
    for session in base.sessions:
        by_trial.setdefault(session.trial, []).append(session.variant)
    assert [s.rank for s in base.sessions] == list(range(8))
    for order in by_trial.values():
        assert sorted(order) == ["plain", "spec"]
    assert by_trial[2] == by_trial[1][::-1]
    assert by_trial[4] == by_trial[3][::-1]


def test_an_added_level_leaves_the_order_of_the_others(tmp_path, base):
    more = campaign(tmp_path, load={**CONFIG["load"], "concurrency": [1, 2, 4, 16]})
    for trial in range(1, 5):
        kept = [p for p in more.in_drawn_order(trial, more.grid) if p[1] != 2]
        assert kept == base.in_drawn_order(trial, base.grid)


def test_the_order_of_levels_varies_between_trials(tmp_path):
    load = {"concurrency": [1, 2, 4, 8, 16, 32], "trials": 20}
    drawn = campaign(tmp_path, load=load)
    first = Counter(drawn.in_drawn_order(trial, drawn.grid)[0] for trial in range(1, 21))
    assert len(first) >= 4


def test_each_variant_is_compared_with_the_baseline_unless_told(tmp_path, base):
    assert base.comparisons == (("spec", "plain"),)
    told = campaign(tmp_path, analysis={"compare": [["plain", "spec"]]})
    assert told.comparisons == (("plain", "spec"),)
    with pytest.raises(CampaignError, match=r"analysis\.compare: 'spek' .*did you mean 'spec'"):
        campaign(tmp_path, analysis={"compare": [["spek", "plain"]]})


def test_a_variant_survives_the_way_through_json(base):
    for variant in base.variants.values():
        assert Variant.from_dict(json.loads(json.dumps(dataclasses.asdict(variant)))) == variant


def test_a_variant_may_be_empty_and_takes_the_defaults(base):
    assert base.variants["plain"].args == {"memory-ms": 4.0, "overhead-ms": 2.0}
    assert base.variants["spec"].args == {
        "memory-ms": 4.0,
        "overhead-ms": 2.0,
        "drafted-tokens": 3,
    }


def test_all_problems_of_a_file_are_told_at_once(tmp_path):
    with pytest.raises(CampaignError) as caught:
        load_campaign({"campaign": "x y", "variant": {}}, "mine.yaml", tmp_path)
    text = str(caught.value)
    assert "missing key" in text
    assert "did you mean 'variants'" in text
    assert "'x y' is not allowed" in text
    assert all(line.startswith("mine.yaml: ") for line in text.splitlines())


def test_an_api_key_is_named_never_written(tmp_path):
    variants = {"plain": {}, "spec": {"api_key": "sk-12345"}}
    with pytest.raises(CampaignError, match=r"api_key") as caught:
        campaign(tmp_path, variants=variants)
    assert "sk-12345" not in str(caught.value)


@pytest.mark.parametrize(
    "variant",
    [
        {"env": {"HF_TOKEN": "hf_12345"}},
        {"env": {"AWS_SECRET_ACCESS_KEY": "hf_12345"}},
        {"args": {"api-key": "hf_12345"}},
        {
            "engine": "openai",
            "args": None,
            "command": ["serve", "--port", "{port}", "--api-key", "hf_12345"],
        },
        {"engine": "openai", "args": None, "command": ["serve", "{port}", "--auth-token=hf_12345"]},
        {"args": {"api-key": ["hf_12345"]}},
        {"args": {"api-key": [["hf_12345"], ["hf_6"]]}},
        {"args": {"default-headers": {"Authorization": "Bearer hf_12345"}}},
        {"engine": "openai", "command": ["docker", "run", "-e", "HF_TOKEN=hf_12345", "{port}"]},
        {"engine": "openai", "command": ["docker", "run", "--env=HF_TOKEN=hf_12345", "{port}"]},
        {
            "engine": "openai",
            "command": ["s", "{port}", "--header", "Authorization: Bearer hf_12345"],
        },
        {"engine": "openai", "command": ["bash", "-c", "X=1 API_KEY=hf_12345 serve {port}"]},
        {"engine": "openai", "args": None, "url": "http://user:hf_12345@127.0.0.1:1"},
    ],
)
def test_a_secret_that_is_written_into_the_file_is_refused(tmp_path, variant):
    defaults = {"engine": "simulated"}
    variant = {k: v for k, v in variant.items() if v is not None}
    with pytest.raises(CampaignError) as caught:
        campaign(tmp_path, defaults=defaults, variants={"plain": {}, "spec": variant})
    assert "hf_12345" not in str(caught.value)


def test_a_secret_of_the_shell_stays_a_name_until_the_server_starts(tmp_path, monkeypatch):
    command = ["serve", "--port", "{port}", "--api-key", "${MY_KEY}"]
    variants = {"plain": {}, "spec": {"engine": "openai", "command": command}}
    found = campaign(tmp_path, defaults={"engine": "simulated"}, variants=variants)
    assert missing_in_shell(found.variants["spec"]) == ["MY_KEY"]
    before = found.server_digests
    monkeypatch.setenv("MY_KEY", "sk-1")
    assert missing_in_shell(found.variants["spec"]) == []
    again = campaign(tmp_path, defaults={"engine": "simulated"}, variants=variants)
    assert again.server_digests == before
    assert "sk-1" not in repr(again)


def test_what_a_value_is_given_to_makes_it_a_secret_whatever_its_name(tmp_path, monkeypatch):
    command = ["serve", "{port}", "-e", "HF_TOKEN=${HUB}", "--seed", "${SEED}"]
    spec = {"engine": "openai", "command": command, "api_key": "${LLM}"}
    variants = {"plain": {}, "spec": spec}
    found = campaign(tmp_path, defaults={"engine": "simulated"}, variants=variants).variants["spec"]
    assert secret_names(found) == {"HUB", "LLM"}
    for name, value in {"HUB": "h-1", "LLM": "l-1", "SEED": "7"}.items():
        monkeypatch.setenv(name, value)
    known = environment.inherited(found)
    assert (known["HUB"], known["LLM"], known["SEED"]) == ("(hidden)", "(hidden)", "7")
    assert environment.hider(found)("l-1 of h-1, 7") == "${LLM} of ${HUB}, 7"


def test_a_server_that_runs_already_inherits_nothing(tmp_path, monkeypatch):
    running = {"engine": "openai", "url": "http://h:1", "api_key": "${LLM_KEY}"}
    started = {"engine": "openai", "command": ["s", "{port}"], "env": {"KEY": "${LLM_KEY}"}}
    variants = {"plain": running, "spec": started}
    found = campaign(tmp_path, defaults={}, variants=variants).variants
    monkeypatch.setenv("LLM_KEY", "sk-1")
    assert environment.inherited(found["plain"]) == {}
    assert environment.inherited(found["spec"])["LLM_KEY"] == "(hidden)"


def test_prompts_too_short_to_differ_are_refused(tmp_path):
    def workloads(tokens):
        return {"fixed": {"prompts": {"text": "fixed-length", "tokens": tokens}, "max_tokens": 8}}

    campaign(tmp_path, workloads=workloads(LEAST_TOKENS))
    with pytest.raises(CampaignError, match="7 is less than the minimum of 8"):
        campaign(tmp_path, workloads=workloads(LEAST_TOKENS - 1))


def test_one_number_has_one_spelling(tmp_path, base):
    workloads = config()["workloads"]
    workloads["chat"] |= {"temperature": 0, "max_tokens": 8.0}
    load = {**CONFIG["load"], "ramp_s": 3.0, "trials": 4.0, "concurrency": [1.0, 4, 16]}
    spelled = campaign(tmp_path, workloads=workloads, load=load)
    assert spelled.point_digests == base.point_digests
    assert spelled.load.concurrency == (1, 4, 16)
    assert isinstance(spelled.load.trials, int)


def test_args_are_passed_through_as_they_are_written(tmp_path):
    args = {"hf-overrides": {"factor": 4.0, "first": 4}, "swap-space": 4.0}
    variants = {"plain": {"args": {"seed": 1.0}}, "spec": {"engine": "vllm", "args": args}}
    defaults = {"engine": "vllm", "args": {"memory": 2.0}}
    found = campaign(tmp_path, defaults=defaults, variants=variants).variants
    command = engines.get("vllm").command(found["spec"], found["spec"].model)
    assert command[-6:] == [
        *("--hf-overrides", '{"factor":4.0,"first":4}', "--memory", "2.0", "--swap-space", "4.0")
    ]
    assert found["plain"].args == {"memory": 2.0, "seed": 1.0}


@pytest.mark.parametrize(
    ("engine", "args", "message"),
    [
        ("vllm", {"speculative-config": [1]}, r"args\.speculative-config: \[1\] is no mapping"),
        ("vllm", {"speculative-config": "[1]"}, "is no mapping"),
        ("vllm", {"speculative-config": "{method: ngram}"}, "is no JSON"),
        (
            "vllm",
            {"speculative-config": {"num_speculative_tokens": "three"}},
            r"num_speculative_tokens: 'three' is no number",
        ),
        (
            "sglang",
            {"speculative-algorithm": "EAGLE3", "speculative-num-steps": [3]},
            r"args\.speculative-num-steps: \[3\] is no number",
        ),
        (
            "sglang",
            {"tp-size": 2, "tp_size": 4},
            "'tp-size' and 'tp_size' are one flag",
        ),
    ],
)
def test_args_that_cannot_be_meant_are_refused_before_anything_starts(
    tmp_path, engine, args, message
):
    variants = {"plain": {}, "spec": {"engine": engine, "args": args}}
    with pytest.raises(CampaignError, match=message):
        campaign(tmp_path, defaults={"engine": "simulated"}, variants=variants)


def test_a_draft_length_that_the_shell_gives_is_not_known_beforehand(tmp_path):
    args = {"speculative-algorithm": "EAGLE3", "speculative-num-steps": "${STEPS}"}
    variants = {"plain": {}, "spec": {"engine": "sglang", "args": args}}
    spec = campaign(tmp_path, defaults={"engine": "simulated"}, variants=variants).variants["spec"]
    assert engines.get("sglang").drafted_tokens(spec) is None


def test_a_draft_length_that_contradicts_the_flags_is_refused(tmp_path):
    drafts = {"speculative-config": {"method": "ngram", "num_speculative_tokens": 3}}
    spec = {"engine": "vllm", "args": drafts, "speculation": {"method": "n", "drafted_tokens": 4}}
    with pytest.raises(CampaignError, match=r"spec\.speculation\.drafted_tokens: 4, and by its"):
        campaign(tmp_path, defaults={"engine": "simulated"}, variants={"plain": {}, "spec": spec})


def test_an_expansion_that_nobody_does_is_refused(tmp_path):
    variants = {"plain": {}, "spec": {"env": {"CACHE": "${CACHE:-/tmp}"}}}
    with pytest.raises(CampaignError, match=r"variants\.spec\.env\.CACHE: .* is not filled in"):
        campaign(tmp_path, variants=variants)


@pytest.mark.parametrize("word", ["off", "on", "yes", "No"])
def test_a_word_that_yaml_takes_for_a_truth_value_is_refused(tmp_path, word):
    file = tmp_path / "words.yaml"
    file.write_text(f"args: {{x: true, y: 'off', flash-attn: {word}}}\n")
    with pytest.raises(CampaignError, match=f'{word} is (true|false) to YAML; .* "{word}" in quot'):
        read_campaign(str(file))


def test_a_key_that_an_engine_does_not_take_is_refused(tmp_path):
    variants = {"plain": {}, "spec": {"binary": "llama-server"}}
    with pytest.raises(CampaignError, match=r"variants\.spec\.binary: engine simulated"):
        campaign(tmp_path, variants=variants)


def test_a_key_that_stands_there_twice_is_refused(tmp_path):
    file = tmp_path / "twice.yaml"
    file.write_text("campaign: a\nvariants:\n  plain: {}\n  plain: {args: {x: 1}}\n")
    with pytest.raises(CampaignError, match=r"key 'plain' stands there twice(.|\n)*line 4"):
        read_campaign(str(file))


def test_merge_keys_and_aliases_are_no_repeats(tmp_path):
    file = tmp_path / "merged.yaml"
    file.write_text("a: &a {x: 1}\nb: {<<: *a, x: 2}\nc: *a\n")
    assert read_yaml(file) == {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 1}}


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ({"steady": {"min_s": 60, "max_s": 30}}, "min_s 60 is above max_s 30"),
        ({"steady": {"min_s": float("nan")}}, r"load\.steady\.min_s: nan"),
        ({"request_timeout_s": float("inf")}, r"load\.request_timeout_s: inf"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(tmp_path, load, message):
    with pytest.raises(CampaignError, match=message):
        campaign(tmp_path, load={"concurrency": [1], **load})


@pytest.mark.parametrize("engine", ["simulated", "llamacpp"])
def test_a_number_may_come_from_the_shell(tmp_path, engine):
    flag = {"simulated": "drafted-tokens", "llamacpp": "ctx-size"}[engine]
    defaults = {"engine": engine, "args": {}}
    variants = {"plain": {}, "spec": {"args": {flag: "${N}"}}}
    model = {"name": "m", "path": "m.gguf"}
    read = campaign(tmp_path, defaults=defaults, variants=variants, model=model)
    assert "${N}" in engines.get(engine).command(read.variants["spec"], read.model)
    variants["spec"]["args"][flag] = "many"
    with pytest.raises(CampaignError, match=r"spec.*many"):
        campaign(tmp_path, defaults=defaults, variants=variants, model=model)


def test_a_stop_command_is_for_servers_that_are_started(tmp_path):
    stop = ["docker", "rm", "--force", "{name}"]
    with pytest.raises(CampaignError, match=r"variants\.spec\.stop: engine simulated"):
        campaign(tmp_path, variants={"plain": {}, "spec": {"stop": stop}})
    remote = {"engine": "openai", "args": {}, "url": "http://h", "stop": stop}
    with pytest.raises(CampaignError, match=r"variants\.spec\.stop: given with url"):
        campaign(tmp_path, defaults={}, variants={"plain": {"engine": "simulated"}, "spec": remote})


def test_a_header_may_name_a_secret_of_the_shell(tmp_path):
    command = ["serve", "{port}", "--header", "Authorization: Bearer ${HUB}"]
    spec = {"engine": "openai", "command": command}
    variants = {"plain": {}, "spec": spec}
    found = campaign(tmp_path, defaults={"engine": "simulated"}, variants=variants).variants["spec"]
    assert secret_names(found) == {"HUB"}
