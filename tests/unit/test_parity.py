"""What differs between the arms besides speculation, and what follows from it."""

import json
from pathlib import Path

import pandas as pd
import pytest
from gpu_tables import description, sglang, tables, vllm

from crossover import engines
from crossover.agreement import Agreement, greedy_agreement
from crossover.arm_settings import ArmSettings
from crossover.campaign import Analysis, Campaign, Load, Model, Variant, Workload
from crossover.parity import RULES, compare_arms
from crossover.verdict import find_verdict
from crossover.verdicts import judge

SGLANG_ACCOUNT = Path(__file__).parents[1] / "data/engines/sglang/server_info.json"
PLAIN = {"engine_version": "v1", "max_running_requests": 256, "front_end_processes": 4}


def verdicts(points, sessions, variant="eagle3"):
    """The verdict without the rules, and with them."""
    off = find_verdict(points, Analysis(), variant=variant, baseline="plain", workload="words")
    parity = compare_arms(points, sessions, variant, "plain")
    on = find_verdict(
        parity.held_to(points), Analysis(), variant=variant, baseline="plain", workload="words"
    )
    return off, parity.applied_to(on)


def codes(verdict):
    return {caveat["code"] for caveat in verdict.caveats}


def levels_of(verdict):
    return [level.concurrency for level in verdict.levels]


# ------------------------------------------------------------------ measured on an H200


def test_vllms_single_api_server_at_250():
    """The right answer, with four API servers, is 0.953 at 250: a crossover beyond 100."""
    points, sessions = tables(
        {"plain": vllm("base", "1"), "eagle3": vllm("e3k3", "1")},
        {arm: description(**PLAIN | {"front_end_processes": 1}) for arm in ("plain", "eagle3")},
    )
    off, on = verdicts(points, sessions)
    assert off.verdict == "variant_faster_throughout"  # wrong: 1.08 at 250
    assert off.levels[-1].concurrency == 250
    assert off.levels[-1].ratio == pytest.approx(1.076, abs=0.01)
    assert levels_of(on) == [1, 2, 5, 10, 30, 70, 100]
    assert on.censored == {"side": "above", "bound": 100}
    assert "running_differs" in codes(on)
    assert on.parity["levels_left_out"] == [{"concurrency": 250, "reason": "running_differs"}]
    (text,) = [c["text"] for c in on.caveats if c["code"] == "running_differs"]
    assert "192 of 250 in plain, 244 in eagle3" in text


def test_four_api_servers_are_left_alone():
    points, sessions = tables(
        {"plain": vllm("base4", "2"), "eagle3": vllm("e3k3x4", "2")},
        {arm: description(**PLAIN) for arm in ("plain", "eagle3")},
    )
    off, on = verdicts(points, sessions)
    assert off.verdict == on.verdict == "crossover"
    assert on.parity["levels_left_out"] == []
    assert codes(on) == codes(off)


def test_sglangs_single_tokenizer_worker_at_250():
    """1.75 where four workers show 1.03."""
    points, sessions = tables(
        {"plain": sglang("base"), "eagle3": sglang("e3")},
        {arm: description(**PLAIN | {"front_end_processes": 1}) for arm in ("plain", "eagle3")},
    )
    off, on = verdicts(points, sessions)
    assert off.verdict == "variant_faster_throughout"
    assert off.levels[-1].ratio == pytest.approx(1.75, abs=0.03)
    assert max(level.ratio for level in on.levels[-2:]) < 1.35
    assert levels_of(on) == [1, 10, 30, 70, 100]
    assert [e["concurrency"] for e in on.parity["levels_left_out"]] == [150, 250]


def test_sglangs_silent_cap_of_48():
    """The crossing is the cap's: with the cap set the variant is 1.03 at 250."""
    plain = {level: sglang("base")[level] for level in (30, 70)} | {250: sglang("base4")[250]}
    points, sessions = tables(
        {"plain": plain, "eagle3": sglang("e3cap")},
        {
            "plain": description(**PLAIN),
            "eagle3": description(**PLAIN | {"max_running_requests": 48}),
        },
    )
    points["running_requests_mean"] = None  # from the servers' descriptions alone
    off, on = verdicts(points, sessions)
    assert off.verdict == "crossover"
    assert off.crossings[0].bracket == (70, 250)
    assert on.crossings == ()
    assert levels_of(on) == [30]
    assert [e["concurrency"] for e in on.parity["levels_left_out"]] == [70, 250]
    (text,) = [c["text"] for c in on.caveats if c["code"] == "cap_differs"]
    assert "plain: 256, eagle3: 48" in text


# ------------------------------------------------------------------ the rules one by one


LEVELS = {c: {"output_throughput_tokens_per_s": 100.0 * c} for c in (1, 8, 64)}


def parity_of(plain, spec, levels=LEVELS, spec_levels=None, agreement=None):
    points, sessions = tables(
        {"plain": levels, "spec": spec_levels or levels}, {"plain": plain, "spec": spec}
    )
    return compare_arms(points, sessions, "spec", "plain", agreement)


def parity_of_described(plain, spec, **columns):
    levels = {c: values | columns for c, values in LEVELS.items()}
    return parity_of(description(**PLAIN | plain), description(**PLAIN | spec), levels)


def effect(parity, what):
    (row,) = [row for row in parity.sheet if row.what == what]
    return row.effect


def said(parity):
    return {caveat["code"]: caveat["text"] for caveat in parity.caveats}


def test_arms_that_are_alike_have_no_caveat():
    parity = parity_of_described({}, {})
    assert parity.caveats == ()
    assert parity.left_out == {}
    assert {row.effect for row in parity.sheet} == {"same", "unknown"}


def test_a_cap_above_all_levels_does_not_matter():
    parity = parity_of_described({"max_running_requests": 64}, {"max_running_requests": 512})
    assert effect(parity, "max_running_requests") == "harmless"
    assert parity.caveats == ()


def test_a_kv_cache_that_holds_a_level_in_one_arm_alone():
    parity = parity_of_described({"kv_tokens": 100_000}, {"kv_tokens": 30_000})
    assert "concurrency 64 the requests, 512 tokens each" in said(parity)["kv_tokens_differ"]
    enough = parity_of_described({"kv_tokens": 100_000}, {"kv_tokens": 90_000})
    assert effect(enough, "kv_tokens") == "harmless"


def test_graphs_that_end_between_the_levels():
    parity = parity_of_described({"graph_max_requests": 256}, {"graph_max_requests": 8})
    assert "At concurrency 64" in said(parity)["graphs_differ"]


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("memory_fraction", (0.85, 0.8)),
        ("chunked_prefill_tokens", (8192, 0)),
        ("front_end_processes", (4, 1)),
    ],
)
def test_settings_whose_difference_is_a_caveat(what, values):
    parity = parity_of_described({what: values[0]}, {what: values[1]})
    assert effect(parity, what) == "caveat"
    assert f"plain: {values[0]}, spec: {values[1]}" in said(parity)[f"{what}_differ"]


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, None), (None, "not known"), (0.4, "up to 40 % of the prompt tokens")]
)
def test_a_prefix_cache_matters_if_prompts_came_from_it(share, text):
    cached = {c: values | {"cached_tokens_share": share} for c, values in LEVELS.items()}
    none = {c: values | {"cached_tokens_share": share and 0.0} for c, values in LEVELS.items()}
    parity = parity_of(
        description(**PLAIN, prefix_cache=False),
        description(**PLAIN, prefix_cache=True),
        none,
        cached,
    )
    caveat = said(parity).get("prefix_caches_differ")
    assert (caveat is None) if text is None else (text in caveat)


def test_other_processors_are_not_compared():
    other = description(**PLAIN) | {"hardware": json.dumps({"cpu": "x", "gpus": ["H100"]})}
    parity = parity_of(description(**PLAIN), other)
    assert parity.reasons == ("hardware_differs",)
    points, sessions = tables(
        {"plain": LEVELS, "spec": LEVELS}, {"plain": description(**PLAIN), "spec": other}
    )
    _, verdict = verdicts(points, sessions, "spec")
    assert verdict.verdict == "not_comparable"
    assert "different processors" in verdict.to_dict()["sentence"]


def test_another_kernel_is_the_same_machine():
    other = {"hardware": json.dumps({"cpu": "x", "gpus": ["H200"], "kernel": "7"})}
    assert parity_of(description(**PLAIN), description(**PLAIN) | other).reasons == ()


def test_a_replaced_model_file_is_not_compared_but_two_models_are():
    one = description(**PLAIN) | {"model_path": "m", "model_fingerprint": "1"}
    replaced = one | {"model_fingerprint": "2"}
    assert parity_of(one, replaced).reasons == ("model_file_differs",)
    asked_for = replaced | {"model_path": "n", "model_name": "other"}
    parity = parity_of(one | {"model_name": "m"}, asked_for)
    assert parity.reasons == ()
    assert "model name (plain: m, spec: other)" in said(parity)["models_differ"]


def test_speculation_that_was_declared_and_not_applied():
    silent = description(**PLAIN, speculation_method="none") | {"speculation_method": "eagle3"}
    parity = parity_of(description(**PLAIN, speculation_method="none"), silent)
    assert parity.reasons == ("speculation_not_applied",)
    applied = description(**PLAIN, speculation_method="on") | {"speculation_method": "eagle3"}
    parity = parity_of(description(**PLAIN, speculation_method="none"), applied)
    assert parity.reasons == ()
    assert effect(parity, "speculation_method") == "speculation"


@pytest.mark.parametrize(("acceptance_length", "verified"), [(None, False), (2.5, True)])
def test_speculation_that_no_server_confirms_is_unverified(acceptance_length, verified):
    levels = {c: values | {"acceptance_length": acceptance_length} for c, values in LEVELS.items()}
    declared = description(**PLAIN) | {"speculation_method": "eagle3"}
    parity = parity_of(description(**PLAIN), declared, spec_levels=levels)
    assert ("speculation_unverified" not in said(parity)) == verified
    assert parity.reasons == ()


def test_drafts_of_another_length_than_declared():
    spec = description(**PLAIN, drafted_tokens=3) | {"drafted_tokens": 5}
    parity = parity_of(description(**PLAIN), spec)
    assert "drafts 3 tokens" in said(parity)["drafted_tokens_not_as_declared"]


def test_flags_variables_and_the_servers_own_settings():
    plain = {
        "engine": "llamacpp",
        "command": ["serve", "--port", "1", "--ctx-size", "4096", "--mlock"],
        "env": {"THREADS": "2"},
    }
    spec = plain | {
        "command": ["serve", "--port", "1", "--ctx-size", "8192", "--spec-type", "draft"],
        "env": {"THREADS": "4"},
    }
    parity = parity_of(
        plain | description(**PLAIN, resolved={"cache": {"size": 1, "specs": 2}}),
        spec | description(**PLAIN, resolved={"cache": {"size": 3, "specs": 4}}),
    )
    assert effect(parity, "--spec-type") == "speculation"
    assert effect(parity, "server: cache.specs") == "speculation"
    text = said(parity)["settings_differ"]
    assert "--ctx-size (4096 / 8192)" in text
    assert "--mlock (given / not given)" in text
    assert "$THREADS (2 / 4)" in text
    assert "server: cache.size (1 / 3)" in text
    assert "spec-type" not in text


def test_a_repeated_flag_is_all_of_its_values():
    def arm(first):
        words = ["serve", "--middleware", first, "--middleware", "b.B"]
        return ArmSettings.of([{"command": words}])

    assert arm("a.A").differences(arm("c.C")) == {"--middleware": (["a.A", "b.B"], ["c.C", "b.B"])}


def recorded_sglang(*flags, **changed):
    """The session of a server that was started with `flags` and gave a recorded account."""
    account = json.loads(SGLANG_ACCOUNT.read_text()) | changed
    return {
        "engine": "sglang",
        "command": ["sglang", "serve", *flags],
        **description(**PLAIN, resolved=account),
    }


def test_what_a_start_gave_is_no_setting_and_a_long_list_is_told_by_its_ends():
    parity = parity_of(
        recorded_sglang(max_total_num_tokens=9, startup_time={"load": 1.0}, cuda_graph_bs=[1, 2]),
        recorded_sglang(
            max_total_num_tokens=8, startup_time={"load": 2.0}, cuda_graph_bs=[*range(1, 40)]
        ),
    )
    text = said(parity)["settings_differ"]
    assert "server: cuda_graph_bs ([1, 2] / 39 numbers, 1 to 39). The verdict" in text
    assert "max_total_num_tokens" not in text
    assert "startup_time" not in text


def test_a_server_that_applied_something_else_than_its_flags_ask_for_is_told():
    flags = [
        *("--speculative-adaptive", "--speculative-num-steps", "3", "--tokenizer-worker-num", "4"),
        *(
            "--mem-fraction-static",
            "0.8",
            "--attention-backend",
            "auto",
            "--max-total-tokens",
            "-1",
        ),
    ]
    as_asked = {"tokenizer_worker_num": 4, "mem_fraction_static": 0.8, "max_total_tokens": 9}
    same = recorded_sglang(*flags, **as_asked, speculative_adaptive=True)
    assert "not_applied" not in said(parity_of(same, same))
    # it switches adaptive drafting off by itself where it is not supported
    other = recorded_sglang(
        *flags, **as_asked | {"tokenizer_worker_num": 1}, speculative_adaptive=False
    )
    assert said(parity_of(same, other))["not_applied"] == (
        "The server of spec says that it applied other settings than its flags ask for: "
        "--speculative-adaptive (applied: false), --tokenizer-worker-num (asked for 4, applied 1). "
        "See its log."
    )


@pytest.mark.parametrize("applied", [True, False])
def test_a_flag_that_switches_off_is_compared_too(applied):
    account = {"cache_config": {"enable_prefix_caching": applied}}
    arm = {"engine": "vllm", "command": ["vllm", "--no-enable-prefix-caching"]}
    arm |= description(**PLAIN, resolved=account)
    assert ("not_applied" in said(parity_of(arm, arm))) == applied


def test_a_port_is_no_setting():
    def sessions(first):
        return [
            {"engine": "simulated", "command": ["s", "--port", str(first + i), "--listen=a:1"]}
            for i in range(2)
        ]

    ours, theirs = ArmSettings.of(sessions(4000)), ArmSettings.of(sessions(5000))
    assert ours.differences(theirs) == {}


def test_json_in_a_flag_is_compared_key_by_key():
    def arm(rate):
        config = json.dumps({"method": "eagle3", "rates": [rate], "k": 3})
        return ArmSettings.of([{"command": ["serve", "--speculative-config", config]}])

    assert arm(0.5).differences(arm(0.7)) == {"--speculative-config.rates": ([0.5], [0.7])}


def test_an_imported_file_is_asked_for_nothing_and_its_gaps_are_named():
    nothing = {"command": None, "hardware": None, "host": None, "boot_id": None}
    parity = parity_of(nothing, nothing)
    text = said(parity)["parity_unknown"]
    for what in ("hardware", "engine version", "max running requests", "settings"):
        assert what in text
    assert "of plain and spec" in text
    assert parity.reasons == ()
    assert parity.left_out == {}


def test_one_arm_that_says_less_is_named():
    parity = parity_of(description(**PLAIN), description(**PLAIN | {"max_running_requests": None}))
    assert said(parity)["parity_unknown"].endswith("Not recorded of spec: max running requests.")


def test_running_requests_differ_by_more_than_sampling():
    few = {c: values | {"running_requests_mean": 0.7 * c} for c, values in LEVELS.items()}
    all_of_them = {c: values | {"running_requests_mean": c} for c, values in LEVELS.items()}
    parity = parity_of(description(**PLAIN), description(**PLAIN), all_of_them, few)
    assert parity.left_out == {8: "running_differs", 64: "running_differs"}


def test_points_that_were_invalid_before_keep_their_reasons():
    few = {64: LEVELS[64] | {"running_requests_mean": 10}}
    more = {64: LEVELS[64] | {"running_requests_mean": 60}}
    points, sessions = tables(
        {"plain": few, "spec": more}, {"plain": description(), "spec": description()}
    )
    points.at[0, "valid"] = False
    points.at[0, "invalid_reasons"] = ["errors"]
    held = compare_arms(points, sessions, "spec", "plain").held_to(points)
    assert not held["valid"].any()
    assert list(held["invalid_reasons"][0]) == ["errors", "running_differs"]
    assert list(points["valid"]) == [False, True, True, True, True, True]


def test_every_rule_copes_with_arms_without_any_record():
    points, sessions = tables({"plain": LEVELS, "spec": LEVELS}, {"plain": {}, "spec": {}})
    parity = compare_arms(points, sessions.iloc[:0], "spec", "plain")
    assert len(parity.sheet) >= len(RULES)
    assert {row.known for row in parity.sheet} <= {False}


# ------------------------------------------------------------------ answers


def answers(ours, theirs):
    return pd.DataFrame(
        {
            "variant": arm,
            "trial": 1,
            "concurrency": 4,
            "request_rate": None,
            "request_id": i,
            "prompt_id": i,
            "status": "ok",
            "text_digest": digest,
        }
        for arm, digests in (("spec", ours), ("plain", theirs))
        for i, digest in enumerate(digests)
    )


def test_greedy_answers_are_compared_prompt_by_prompt():
    found = greedy_agreement(answers("abcx", "abdx"), "spec", "plain")
    assert found == Agreement(4, 3, 0.75)


def test_a_request_that_one_arm_did_not_answer_is_no_pair():
    requests = answers("abc", "abcd")
    requests.loc[0, "status"] = "cancelled"
    assert greedy_agreement(requests, "spec", "plain") == Agreement(2, 2, 1.0)
    assert greedy_agreement(requests.assign(text_digest=None), "spec", "plain") is None


def test_answers_that_mostly_differ_are_a_caveat():
    described = description(**PLAIN)
    differing = parity_of(described, described, agreement=Agreement(50, 10, 0.2))
    assert "Of 50 greedy answers" in said(differing)["answers_differ"]
    assert differing.to_dict()["greedy_agreement"]["identical"] == 10
    assert "answers_differ" not in said(
        parity_of(described, described, agreement=Agreement(50, 40, 0.8))
    )


# ------------------------------------------------------------------ in verdicts.json


def campaign(temperature=0.0):
    model = Model("m")
    return Campaign(
        "c",
        "plain",
        model,
        {name: Variant(name, "openai", model, url="http://x") for name in ("plain", "eagle3")},
        {"words": Workload("words", "p", "0", max_tokens=256, temperature=temperature)},
        Load((1,)),
        Analysis(),
    )


def test_verdicts_and_policy_keep_to_the_rules(tmp_path):
    points, sessions = tables(
        {"plain": vllm("base", "1"), "eagle3": vllm("e3k3", "1")},
        {arm: description(**PLAIN) for arm in ("plain", "eagle3")},
    )
    requests = tmp_path / "requests.parquet"
    answers("ab", "ab").assign(workload="words").replace({"spec": "eagle3"}).to_parquet(requests)
    found, policy = judge(points, sessions, campaign(), requests)
    (verdict,) = found["verdicts"]
    json.dumps(verdict, allow_nan=False)
    assert [level["concurrency"] for level in verdict["levels"]][-1] == 100
    assert verdict["parity"]["greedy_agreement"] == {"pairs": 2, "identical": 2, "share": 1.0}
    assert policy["workloads"][0]["runs"][-1]["to_concurrency"] == 100


def test_sampled_answers_are_not_compared(tmp_path):
    points, sessions = tables(
        {"plain": LEVELS, "eagle3": LEVELS}, {"plain": description(), "eagle3": description()}
    )
    requests = tmp_path / "requests.parquet"
    answers("ab", "ab").assign(workload="words").replace({"spec": "eagle3"}).to_parquet(requests)
    found, _ = judge(points, sessions, campaign(temperature=0.7), requests)
    assert found["verdicts"][0]["parity"]["greedy_agreement"] is None


@pytest.mark.parametrize("name", engines.ENGINES)
def test_an_acceptance_dial_is_a_setting_of_speculation(name):
    engine = type(engines.get(name))
    if engine.acceptance_settings is not None:
        arm = ArmSettings({}, frozenset(), engine)
        assert arm.belongs_to_speculation(f"--{engine.acceptance_settings}")
        assert not arm.dials_acceptance("--ctx-size")


def test_a_cap_that_differs_at_request_rates_is_told_and_leaves_no_level_out():
    few = PLAIN | {"max_running_requests": 48}
    points, sessions = tables(
        {"plain": LEVELS, "spec": LEVELS},
        {"plain": description(**PLAIN), "spec": description(**few)},
    )
    points = points.assign(request_rate=points["concurrency"] / 4, concurrency=None)
    parity = compare_arms(points, sessions, "spec", "plain")
    effects = {row.what: row.effect for row in parity.sheet}
    assert effects["max_running_requests"] == "caveat"
    assert parity.left_out == {}
    assert "cap_differs" in {caveat["code"] for caveat in parity.caveats}
