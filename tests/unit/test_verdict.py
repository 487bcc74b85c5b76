"""Verdicts, blocks and sentences."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crossover import records
from crossover.blocks import Launch, form_blocks
from crossover.campaign import Analysis
from crossover.errors import CampaignError
from crossover.noise_floor import with_noise_floor
from crossover.stats.model import Settings
from crossover.verdict import find_verdict, sentence

TABLES = Path(__file__).parents[1] / "data" / "tables"
HOUR = 3600.0
THROUGHPUT = "output_throughput_tokens_per_s"

FALLING = {1: 1.6, 2: 1.5, 4: 1.3, 8: 1.1, 16: 0.8, 32: 0.7}


def points_of(ratios, trials=3, *, noise=0.003, seed=1, variant="ngram", **columns):
    """Points of plain and a variant with the given ratio at each level; noise in ln."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "workload": "code",
            "variant": arm,
            "trial": trial,
            "concurrency": level,
            THROUGHPUT: 3000 * level / (level + 30) * np.exp(rng.normal(0, noise)) * factor,
            **columns,
        }
        for trial in range(1, trials + 1)
        for arm in ("plain", variant)
        for level, ratio in ratios.items()
        for factor in [ratio if arm == variant else 1.0]
    )


def judge(points, variant="ngram", **analysis):
    settings = analysis.pop("settings", None)
    return find_verdict(
        points, Analysis(**analysis), variant=variant, baseline="plain", settings=settings
    )


def table(name, published_value=lambda t: t["throughput_tok_s"], column=THROUGHPUT):
    """A published table as points: one trial, no session facts."""
    published = pd.read_csv(TABLES / f"{name}.csv")
    return pd.DataFrame(
        {
            "variant": ["plain" if c.startswith("baseline") else c for c in published["config"]],
            "trial": 1,
            "concurrency": published["concurrency"],
            column: published_value(published),
        }
    )


# ------------------------------------------------------------------ the classes and sentences


def test_crossover():
    verdict = judge(points_of(FALLING))
    (crossing,) = verdict.crossings
    assert verdict.verdict == "crossover"
    assert crossing.bracket == (8, 16)
    assert 8 < crossing.ci[0] < crossing.c_star < crossing.ci[1] < 16
    assert [level.label for level in verdict.levels] == list("++++--")
    said = sentence(verdict)
    low, star, high = (int(c) for c in (crossing.ci[0], crossing.c_star, crossing.ci[1]))
    assert f"faster up to concurrency {star} (95 % interval {low}–{high}) and slower" in said
    assert "on 1–32 tested" in said
    assert "Nothing was tested between 8 and 16" in said


def test_whole_concurrencies_need_nothing_between_them():
    verdict = judge(points_of({1: 1.5, 2: 0.8, 3: 0.7}))
    assert verdict.crossings[0].coarse
    assert "faster up to concurrency 1 (95 % interval 1) and slower" in sentence(verdict)
    assert "Nothing was tested" not in sentence(verdict)


def test_reverse_crossover():
    verdict = judge(points_of({1: 0.7, 4: 0.8, 16: 1.2, 64: 1.4}))
    assert [c.direction for c in verdict.crossings] == ["up"]
    assert "slower up to" in sentence(verdict)
    assert "and faster beyond" in sentence(verdict)


def test_several_crossovers():
    verdict = judge(points_of({1: 0.8, 4: 1.3, 16: 1.3, 64: 0.7}))
    assert verdict.verdict == "multiple_crossovers"
    assert [c.direction for c in verdict.crossings] == ["up", "down"]
    said = sentence(verdict)
    assert said.index("slower up to") < said.index("faster up to") < said.index("slower beyond")


def test_faster_throughout_is_not_never():
    verdict = judge(points_of({1: 1.9, 4: 1.6, 16: 1.2}))
    assert verdict.verdict == "variant_faster_throughout"
    assert verdict.censored == {"side": "above", "bound": 16}
    assert "no crossover up to 16 tested (that is not “never”)" in sentence(verdict)


def test_faster_somewhere_and_never_clearly_slower():
    verdict = judge(points_of({1: 1.2, 4: 1.1, 16: 1.0}, trials=4, noise=0.002))
    assert verdict.verdict == "variant_faster_throughout"
    assert "faster at 1 and 4 and nowhere more than 2 % slower" in sentence(verdict)


def test_slower_throughout():
    verdict = judge(points_of({1: 0.3, 4: 0.2, 16: 0.2}))
    assert verdict.verdict == "baseline_faster_throughout"
    assert verdict.censored == {"side": "below", "bound": 1}
    assert "slower at every tested concurrency, 1–16" in sentence(verdict)


def test_equivalent():
    verdict = judge(points_of({1: 1.0, 4: 1.0, 16: 1.0}, trials=5, noise=0.002))
    assert verdict.verdict == "equivalent"
    assert verdict.equivalence_margin_supported < 0.02
    assert "differ by less than 2 %" in sentence(verdict)


def test_crossing_within_the_margin_is_said():
    verdict = judge(points_of({1: 1.01, 8: 1.01, 64: 0.99}, trials=5, noise=0.0005))
    assert verdict.verdict == "equivalent"
    assert verdict.reasons == ("crossing_within_margin",)
    assert "within the margin of 2 %" in sentence(verdict)


def test_unresolved_levels_say_how_many_trials_are_missing():
    verdict = judge(points_of({1: 1.5, 4: 1.04, 16: 0.98}, noise=0.03))
    assert verdict.reasons == ("levels_unresolved",)
    assert verdict.labelled("?") == [n["concurrency"] for n in verdict.needed]
    assert all(n["trials"] is None or 3 < n["trials"] <= 40 for n in verdict.needed)
    assert any(n["trials"] for n in verdict.needed)
    said = sentence(verdict)
    assert said.startswith("Cannot tell for all of 1–16 tested: ngram is faster at 1")
    assert "trials would resolve" in said


def of_two_trials(ratios, cv_within):
    """Two trials with the given ratios of each level, and the noise within their windows."""
    return pd.DataFrame(
        {
            "variant": arm,
            "trial": trial,
            "concurrency": level,
            THROUGHPUT: 100.0 * level * (ratio if arm == "ngram" else 1.0),
            "cv_within": cv_within[level],
        }
        for level, both in ratios.items()
        for trial, ratio in enumerate(both, start=1)
        for arm in ("plain", "ngram")
    )


def test_windows_too_short_are_told_from_differences_too_small():
    ratios = {1: (1.50, 1.51), 70: (1.05, 1.06), 250: (0.921, 0.951)}
    verdict = judge(of_two_trials(ratios, {1: 0.004, 70: 0.004, 250: 0.20}))
    (level,) = verdict.needed
    assert (level["concurrency"], level["trials"]) == (250, None)
    assert level["window_cv"] == pytest.approx(0.20)
    assert (
        "at 250 the windows are too short: within one, throughput is known to no better than "
        "±20 %, so measure longer ones (load.steady)"
    ) in sentence(verdict).replace("At 250", "at 250")
    assert "too small" not in sentence(verdict)

    longer = judge(of_two_trials(ratios, {1: 0.004, 70: 0.004, 250: 0.004}))
    assert longer.labelled("-") == [250]


def test_longer_windows_are_no_advice_where_trials_scatter_as_much_or_nothing_differs():
    windows = {1: 0.004, 70: 0.004, 250: 0.02}
    for at_250 in ((0.90, 1.11), (1.0001, 0.9999)):
        verdict = judge(of_two_trials({1: (1.5, 1.51), 70: (1.2, 1.21), 250: at_250}, windows))
        assert {n["concurrency"]: n["window_cv"] for n in verdict.needed}[250] is None
        assert "windows" not in sentence(verdict)


def test_noise_everywhere():
    verdict = judge(points_of({1: 1.0, 4: 1.0, 16: 1.0}, noise=0.2))
    assert verdict.reasons == ("no_significant_level",)
    assert "no tested concurrency, 1–16, shows a difference beyond the noise" in sentence(verdict)


def test_all_resolved_but_the_size_is_open():
    verdict = judge(points_of({1: 1.017, 4: 1.017, 16: 1.017}, noise=0.003))
    assert verdict.labelled("+") == [1, 4, 16]
    assert verdict.verdict == "inconclusive"
    assert "too close to the margin of 2 %" in sentence(verdict)


def test_one_trial_cannot_tell():
    verdict = judge(points_of(FALLING, trials=1))
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons == ("single_repeat",)
    assert {level.label for level in verdict.levels} == {None}
    assert verdict.indicative["labels"] == list("+++?--")
    assert sentence(verdict).startswith(
        "One trial only: cannot tell. The single run suggests that ngram is faster at 1–4, "
        "slower at 16 and 32"
    )


def test_one_trial_of_one_arm_names_it():
    points = points_of(FALLING)
    points = points[(points["variant"] == "plain") | (points["trial"] == 1)]
    assert sentence(judge(points)).startswith("One trial only of ngram: cannot tell.")


def test_nothing_repeated():
    points = points_of({1: 1.5, 4: 1.4, 16: 1.3})
    trial_of = {1: 1, 4: 2, 16: 3}
    verdict = judge(points[points["trial"] == points["concurrency"].map(trial_of)])
    assert verdict.reasons == ("no_replication",)
    assert sentence(verdict).startswith("Too little was repeated to know the noise")


def test_one_common_level():
    points = points_of({1: 1.5, 4: 1.2})
    verdict = judge(points[(points["variant"] == "plain") | (points["concurrency"] == 4)])
    assert "fewer_than_2_common_levels" in verdict.reasons
    assert verdict.dropped_levels == (1,)
    assert "only concurrency 4 was measured in both" in sentence(verdict)


def test_no_common_level_is_not_comparable():
    points = points_of({1: 1.5, 4: 1.2})
    only = {"plain": 1, "ngram": 4}
    verdict = judge(points[points["concurrency"] == points["variant"].map(only)])
    assert (verdict.verdict, verdict.reasons) == ("not_comparable", ("no_common_level",))
    assert "no concurrency in common" in sentence(verdict)


def test_an_arm_without_points_is_not_comparable():
    verdict = judge(points_of(FALLING), variant="eagle3")
    assert verdict.reasons == ("variant_without_valid_points",)
    assert sentence(verdict) == "Not comparable: no valid point of eagle3 was measured."


def test_no_points_at_all_is_not_comparable():
    verdict = find_verdict(
        points_of(FALLING)[:0], Analysis(), variant="ngram", baseline="plain", workload="code"
    )
    assert verdict.workload == "code"
    assert sentence(verdict) == "Not comparable: no valid point of plain nor of ngram was measured."


def test_an_arm_with_invalid_points_only_says_why():
    points = points_of(FALLING)
    mine = points["variant"] == "ngram"
    points["valid"] = ~mine
    points["invalid_reasons"] = [["queue_limited"] if m else [] for m in mine]
    verdict = judge(points)
    assert verdict.verdict == "not_comparable"
    assert "18 left out: requests waited in the server" in sentence(verdict)


def test_law_violation_is_said():
    verdict = judge(points_of({1: 1.5, 2: 1.5, 3: 0.5, 8: 0.5}))
    assert verdict.reasons == ("operational_law_violated",)
    assert verdict.crossings[0].hard == (2.0, 3.0)
    assert "more between these levels than concurrency explains" in sentence(verdict)


def test_unresolved_levels_outside_the_bracket_are_named():
    points = points_of({**FALLING, 64: 1.0}, noise=0.004)
    verdict = judge(points)
    assert "further_crossings_not_excluded" in {c["code"] for c in verdict.caveats}
    assert "Unresolved: 64." in sentence(verdict)


# ------------------------------------------------------------------ what is left out


def test_invalid_points_are_left_out_and_listed():
    points = points_of({1: 1.5, 4: 1.2, 16: 0.8})
    points["valid"], points["error_share"] = True, 0.0
    points["invalid_reasons"] = [[] for _ in range(len(points))]
    sick = (points["variant"] == "ngram") & (points["concurrency"] == 16)
    points.loc[sick & (points["trial"] == 1), "valid"] = False
    points.at[points.index[sick & (points["trial"] == 1)][0], "invalid_reasons"] = ["too_short"]
    points.loc[sick & (points["trial"] == 2), "error_share"] = 0.05
    points.loc[sick & (points["trial"] == 3), THROUGHPUT] = np.nan

    verdict = judge(points)
    assert [(row["trial"], row["reasons"]) for row in verdict.bad_rows] == [
        (1, ["too_short"]),
        (2, ["errors"]),
        (3, ["no_value"]),
    ]
    assert verdict.dropped_levels == (16,)
    assert verdict.feasible_max == {"baseline": 16, "variant": 4}
    assert {"points_left_out", "levels_dropped"} <= {c["code"] for c in verdict.caveats}


def test_one_percent_of_errors_is_tolerated():
    points = points_of({1: 1.5, 4: 1.2}, error_share=0.01)
    assert judge(points).bad_rows == ()


def test_other_variants_are_ignored():
    points = points_of(FALLING)
    other = points_of({1: 9.0, 4: 9.0}, variant="eagle3", seed=2)
    mixed = pd.concat([points, other[other["variant"] == "eagle3"]])
    assert judge(mixed).to_dict() == judge(points).to_dict()


def test_nulls_in_the_table_are_missing_not_zero():
    points = points_of(FALLING, cv_within=None, error_share=None, valid=True, host=None)
    assert judge(points).verdict == "crossover"


def test_points_as_they_are_stored():
    points = points_of(FALLING)
    rows = points.to_dict("records")
    rows[0] |= {"valid": False, "invalid_reasons": ["queue_limited", "too_short"]}
    stored = records.to_table(rows, records.POINTS).to_pandas()
    verdict = judge(stored)
    assert verdict.bad_rows[0]["reasons"] == ["queue_limited", "too_short"]
    assert verdict.levels == judge(points.drop(index=0)).levels
    json.dumps(verdict.to_dict(), allow_nan=False)


# ------------------------------------------------------------------ what is written


@pytest.mark.parametrize(
    "points",
    [points_of(FALLING), points_of(FALLING, trials=1), points_of({4: 1.2}), points_of(FALLING)[:3]],
    ids=["crossover", "one trial", "one level", "not comparable"],
)
def test_json_has_all_keys_and_no_nan(points):
    written = json.loads(json.dumps(judge(points).to_dict(), allow_nan=False))
    assert {
        "variant", "baseline", "workload", "metric", "verdict", "reasons", "caveats", "levels",
        "crossings", "indicative", "censored", "dropped_levels", "bad_rows", "feasible_max",
        "paired", "n_trials", "tau", "equivalence_margin_supported", "needed", "parity",
        "break_even", "sentence",
    } <= set(written)  # fmt: skip
    assert written["workload"] == "code"


def test_levels_hold_means_and_nested_bounds():
    verdict = judge(points_of(FALLING))
    for level in verdict.levels:
        assert level.lo < level.pointwise_lo < level.ratio < level.pointwise_hi < level.hi
        assert level.variant_mean / level.baseline_mean == pytest.approx(level.ratio)
        assert (level.baseline_trials, level.variant_trials) == (3, 3)


def test_confidence_and_margin_come_from_the_campaign():
    points = points_of({1: 1.5, 4: 1.04, 16: 1.0, 64: 0.8}, noise=0.006)
    wide, narrow = judge(points, confidence=0.99), judge(points, confidence=0.9)
    assert wide.crossings[0].ci[0] <= narrow.crossings[0].ci[0]
    assert wide.levels[0].lo < narrow.levels[0].lo
    assert "99 % interval" in sentence(wide)
    near = points_of({1: 1.03, 4: 1.03, 16: 1.03}, trials=5, noise=0.001)
    assert judge(near).verdict == "variant_faster_throughout"
    assert judge(near, margin=0.05).verdict == "equivalent"


def test_settings_replace_those_of_the_campaign():
    points = points_of({1: 1.5, 4: 1.2, 16: 0.8}, noise=0.01)
    looked_often = judge(points, settings=Settings(alpha=0.02))
    assert looked_often.levels[0].lo < judge(points).levels[0].lo
    assert looked_often.crossings[0].ci == judge(points).crossings[0].ci


def test_unknown_metric():
    with pytest.raises(CampaignError, match=r"'goodness' is no metric; allowed: output_throughput"):
        judge(points_of(FALLING), metric="goodness")


# ------------------------------------------------------------------ blocks


def with_sessions(points, apart_h=0.0, **facts):
    """The same points with session facts; the variant's sessions start `apart_h` later."""
    points = points.assign(host="lab", boot_id="b1", engine_version="1.0", **facts)
    late = points["variant"] == "ngram"
    points["session_id"] = points["variant"] + "-" + points["trial"].astype(str)
    points["session_started_at"] = points["trial"] * 48 * HOUR + np.where(late, apart_h * HOUR, 0)
    return points


def test_arms_that_ran_together_are_paired():
    verdict = judge(with_sessions(points_of(FALLING), apart_h=2))
    assert verdict.paired
    assert verdict.caveats == judge(points_of(FALLING)).caveats
    assert verdict.levels == judge(points_of(FALLING)).levels


def test_arms_a_week_apart_are_not_paired():
    points = with_sessions(points_of(FALLING), apart_h=168)
    verdict = judge(points)
    assert not verdict.paired
    (caveat,) = [c for c in verdict.caveats if c["code"] == "arms_not_contemporaneous"]
    assert "trial 2 (started 168 h apart)" in caveat["text"]
    assert "unpaired" in caveat["text"]
    assert "`epoch`" in caveat["text"]
    assert judge(points, block_span_h=200).paired


@pytest.mark.parametrize(
    ("fact", "words"), [("host", "hosts other and lab"), ("boot_id", "rebooted")]
)
def test_arms_on_different_machines_are_not_paired(fact, words):
    points = with_sessions(points_of(FALLING))
    points.loc[points["variant"] == "ngram", fact] = "other"
    verdict = judge(points)
    assert not verdict.paired
    assert words in verdict.caveats[0]["text"]


H200, L40 = (json.dumps({"cpu": "x", "cores": 8, "gpus": [name]}) for name in ("H200", "L40"))


def on_nodes(points, hosts, hardware=(H200, H200)):
    """Arms side by side: in trial t plain and ngram run on the t-th pair of hosts."""
    points = with_sessions(points)
    ngram = (points["variant"] == "ngram").astype(int)
    points["host"] = [hosts[t - 1][i] for t, i in zip(points["trial"], ngram, strict=True)]
    points["hardware"] = [hardware[i] for i in ngram]
    return points


def of_hosts(verdict):
    return [c for c in verdict.caveats if c["code"].startswith("arms_")]


def test_arms_side_by_side_on_nodes_of_one_type_are_not_paired_and_that_is_no_fault():
    verdict = judge(on_nodes(points_of(FALLING), [("n1", "n2"), ("n2", "n1"), ("n1", "n2")]))
    assert not verdict.paired
    assert verdict.verdict == "crossover"
    assert not of_hosts(verdict)


def test_arms_that_never_shared_a_node_are_a_caveat():
    verdict = judge(on_nodes(points_of(FALLING), [("n1", "n2")] * 3))
    (caveat,) = of_hosts(verdict)
    assert caveat["code"] == "arms_on_other_hosts"
    assert "never ran on the same host (plain: n1; ngram: n2)" in caveat["text"]


def test_nodes_of_another_type_are_a_caveat():
    hosts = [("n1", "n2"), ("n2", "n1"), ("n1", "n2")]
    verdict = judge(on_nodes(points_of(FALLING), hosts, (H200, L40)))
    (caveat,) = of_hosts(verdict)
    assert caveat["code"] == "arms_not_contemporaneous"
    assert "trial 1 (hosts n2 and n1 of different types)" in caveat["text"]


def test_a_trial_on_one_node_is_a_pair_on_whichever_node():
    verdict = judge(on_nodes(points_of(FALLING), [("n1", "n1"), ("n2", "n2"), ("n3", "n3")]))
    assert verdict.paired
    assert not of_hosts(verdict)


def test_another_engine_version_is_a_caveat_and_no_pair():
    points = with_sessions(points_of(FALLING))
    points.loc[points["variant"] == "ngram", "engine_version"] = "1.1"
    verdict = judge(points)
    assert not verdict.paired
    assert verdict.caveats[0]["code"] == "engine_version_differs"
    assert "plain: 1.0; ngram: 1.1" in verdict.caveats[0]["text"]


def test_variables_that_the_shell_gave_one_arm_only_are_a_caveat():
    points = with_sessions(points_of(FALLING))
    same, other = [("OMP_NUM_THREADS", "4")], [("OMP_NUM_THREADS", "8"), ("NCCL_ALGO", "Ring")]
    is_ngram = points["variant"] == "ngram"
    points["inherited_env"] = [same for _ in is_ngram]
    assert "environment_differs" not in {c["code"] for c in judge(points).caveats}
    points["inherited_env"] = [other if there else same for there in is_ngram]
    verdict = judge(points)
    (caveat,) = [c for c in verdict.caveats if c["code"] == "environment_differs"]
    assert "NCCL_ALGO: plain not set, ngram Ring" in caveat["text"]
    assert "OMP_NUM_THREADS: plain 4, ngram 8" in caveat["text"]
    assert verdict.paired


def test_blocks_of_a_trial_split_by_time():
    launches = [
        Launch("plain", 1, "a", "lab", "b1", "1.0", started_at=0.0),
        Launch("ngram", 1, "b", "lab", "b1", "1.0", started_at=1 * HOUR),
        Launch("plain", 1, "c", "lab", "b1", "1.0", started_at=30 * HOUR),
        Launch("ngram", 1, "d", "lab", "b1", "1.0", started_at=31 * HOUR),
        Launch("plain", 2, "e", "lab", "b1", "1.0", started_at=1 * HOUR),
    ]
    a, b, c, d, e = map(form_blocks(launches, 12).__getitem__, launches)
    assert a == b
    assert c == d
    assert len({a, c, e}) == 3


def test_a_level_added_later_keeps_the_pairs():
    early = with_sessions(points_of({1: 1.5, 4: 1.2, 16: 0.9}))
    late = with_sessions(points_of({64: 0.7, 128: 0.6}, seed=2))
    late["session_id"] += "-again"
    late["session_started_at"] += 1000 * HOUR
    verdict = judge(pd.concat([early, late]))
    assert verdict.paired
    assert verdict.n_trials == 3
    assert verdict.tau < 0.02
    assert [level.label for level in verdict.levels] == list("++---")


# ------------------------------------------------------------------ caveats about the data


def test_two_trials_are_provisional():
    assert "provisional" in {c["code"] for c in judge(points_of(FALLING, trials=2)).caveats}
    assert "provisional" not in {c["code"] for c in judge(points_of(FALLING)).caveats}


def test_unequal_output_lengths_are_flagged():
    points = points_of(FALLING)
    points["output_tokens_mean"] = np.where(points["variant"] == "ngram", 45.0, 48.0)
    flagged = [c for c in judge(points).caveats if c["code"] == "output_length_differs"]
    assert len(flagged) == len(FALLING)
    assert "45" in flagged[0]["text"]
    points["output_tokens_mean"] = np.where(points["variant"] == "ngram", 47.5, 48.0)
    assert "output_length_differs" not in {c["code"] for c in judge(points).caveats}


# ------------------------------------------------------------------ published tables


@pytest.mark.parametrize(
    ("name", "variant", "labels", "passes"),
    [
        ("qwen38_27b_fp8_vllm_mtp2", "mtp_k2", "++++?-", "between 128 and 256"),
        ("cluster3261_r9700_llamacpp_mtp", "mtp_on", "+?-", "between 1 and 2"),
        ("llama31_8b_a40_vllm_eagle3_ngram", "eagle3_k3", "+++++", None),
        ("external_drafter_n8_batching", "spec_draft_n8", "---", None),
        ("qwen35_397b_awq_vllm_mtp2_ctx65536", "mtp_k2", "----??++", "between 32 and 64"),
    ],
)
def test_published_table_is_indicative_only(name, variant, labels, passes):
    verdict = judge(table(name), variant=variant)
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons == ("single_repeat",)
    assert "".join(verdict.indicative["labels"]) == labels
    said = sentence(verdict)
    assert said.startswith("One trial only: cannot tell.")
    assert (f"the ratio passes 1 {passes}" in said) if passes else ("passes 1" not in said)


def test_a_baseline_that_falls_with_concurrency_is_flagged():
    verdict = judge(table("glm51_rtxpro6000_vllm_dcp1_mtp_ctx0"), variant="mtp")
    texts = [c["text"] for c in verdict.caveats if c["code"] == "throughput_falls"]
    assert any("plain itself falls by 26 % from concurrency 16 to 32" in text for text in texts)


@pytest.mark.parametrize(
    ("metric", "column", "published", "labels"),
    [
        ("decode_rate", "decode_rate_tokens_per_s", lambda t: 1e3 / t["tpot_p50_ms"], "+++"),
        ("ttft", "ttft_s_p50", lambda t: 1e-3 * t["ttft_p50_ms"], "+?-"),
    ],
)
def test_the_answer_depends_on_the_metric(metric, column, published, labels):
    verdict = judge(table("mtp7_dflash_latency_only", published, column), "mtp7", metric=metric)
    assert "".join(verdict.indicative["labels"]) == labels
    said = sentence(verdict)
    assert said.startswith(("Decode rate of a request: One", "Time to first token (closed loop): "))
    first = verdict.levels[0]
    means = (first.variant_mean, first.baseline_mean)
    better, worse = means if metric == "decode_rate" else means[::-1]
    assert first.ratio == pytest.approx(better / worse)


def test_only_throughput_gets_the_structural_band():
    points = points_of(FALLING)
    points["decode_rate_tokens_per_s"] = points[THROUGHPUT]
    crossing = judge(points, metric="decode_rate").crossings[0]
    assert crossing.hard == (8.0, 16.0)
    assert crossing.ci != judge(points).crossings[0].ci


# ------------------------------------------------------------------ other metrics


GOODPUT = "goodput_requests_per_s"


def goodput_of(zero_at, arm="ngram", levels=(1, 4, 16, 64), **options):
    """Points whose goodput is their throughput, and 0 for one arm at some levels."""
    points = points_of({level: 1.6 - 0.1 * math.log(level) for level in levels}, **options)
    none = (points["variant"] == arm) & points["concurrency"].isin(zero_at)
    points[GOODPUT] = points[THROUGHPUT].where(~none, 0.0)
    return points


def test_zero_goodput_is_a_labelled_loss():
    verdict = judge(goodput_of([16, 64]), metric="goodput")
    assert [level.label for level in verdict.levels] == ["+", "+", "-", "-"]
    assert [level.ratio for level in verdict.levels][2:] == [0.0, 0.0]
    (crossing,) = verdict.crossings
    assert crossing.ci == (4.0, 16.0), "nothing says where between the levels"
    assert "zero_at_crossing" in {c["code"] for c in verdict.caveats}
    assert sentence(verdict).startswith("Goodput: ngram is better up to concurrency 8")
    written = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert (written["levels"][3]["ratio"], written["levels"][3]["variant_mean"]) == (0.0, 0.0)


def test_zero_goodput_of_the_baseline_is_a_gain_without_a_number():
    verdict = judge(goodput_of([64], arm="plain"), metric="goodput")
    assert verdict.verdict == "variant_faster_throughout"
    written = verdict.to_dict()
    assert (written["levels"][3]["label"], written["levels"][3]["ratio"]) == ("+", None)


def test_no_goodput_at_all_is_worse_throughout():
    verdict = judge(goodput_of([1, 4, 16, 64]), metric="goodput")
    assert verdict.verdict == "baseline_faster_throughout"
    assert "worse at every tested concurrency, 1–64" in sentence(verdict)


def test_goodput_that_is_zero_in_some_trials_resolves_nothing():
    points = goodput_of([])
    once = (points["variant"] == "ngram") & (points["concurrency"] == 64) & (points["trial"] == 1)
    points.loc[once, GOODPUT] = 0.0
    verdict = judge(points, metric="goodput")
    assert verdict.levels[3].label == "?"
    assert verdict.levels[3].variant_mean > 0
    assert verdict.verdict == "inconclusive"


def test_one_level_with_values_beside_zeros_is_unresolved_and_the_zeros_are_judged():
    """Two common levels or more; with one in the log model nothing is left to tell its noise by."""
    verdict = judge(goodput_of([16, 64], levels=(4, 16, 64)), metric="goodput")
    assert (verdict.verdict, verdict.reasons) == ("inconclusive", ("levels_unresolved",))
    assert [level.label for level in verdict.levels] == ["?", "-", "-"]
    assert verdict.censored == {"side": "below", "bound": 16}
    assert verdict.needed == ()
    assert "one_level_with_values" in {c["code"] for c in verdict.caveats}
    assert "worse at 16 and 64, but 4 is unresolved after 3 trials" in sentence(verdict)
    json.dumps(verdict.to_dict(), allow_nan=False)


def test_one_trial_of_one_level_with_values_beside_zeros():
    verdict = judge(goodput_of([16, 64], levels=(4, 16, 64), trials=1), metric="goodput")
    assert verdict.reasons == ("single_repeat",)
    assert "One trial only: cannot tell" in sentence(verdict)


def test_one_level_of_zeros_is_one_level():
    verdict = judge(goodput_of([4], levels=(4,)), metric="goodput")
    assert verdict.reasons == ("fewer_than_2_common_levels",)


def test_zero_throughput_is_no_result():
    points = goodput_of([64])
    points[THROUGHPUT] = points[GOODPUT]
    verdict = judge(points)
    assert {reason for row in verdict.bad_rows for reason in row["reasons"]} == {"zero_value"}


def test_tokens_per_joule():
    points = points_of(FALLING, window_s=60.0)
    points["gpu_energy_j"] = np.where(points["variant"] == "ngram", 36_000.0, 18_000.0)
    verdict = judge(points, metric="throughput_per_joule")
    by_time = judge(points)
    for level, of_time in zip(verdict.levels, by_time.levels, strict=True):
        assert level.ratio == pytest.approx(of_time.ratio / 2)
        assert level.variant_mean == pytest.approx(of_time.variant_mean * 60 / 36_000)


# ------------------------------------------------------------------ an open loop


def test_levels_of_an_open_loop_are_request_rates():
    rates = {0.5: 1.6, 1.5: 1.5, 4.0: 1.3, 12.0: 0.8, 16.0: 0.7}
    points = points_of(rates).rename(columns={"concurrency": "request_rate"})
    points["concurrency"] = None
    verdict = judge(points)
    (crossing,) = verdict.crossings
    assert crossing.bracket == crossing.hard == (4.0, 12.0), "the laws are those of a closed loop"
    said = sentence(verdict)
    assert f"faster up to {crossing.c_star:.3g} requests/s" in said
    assert "on 0.5–16 requests/s tested (1.60× at 0.5, 0.70× at 16)" in said
    assert "Nothing was tested between 4 and 12 requests/s" in said
    written = verdict.to_dict()
    assert [level["request_rate"] for level in written["levels"]] == list(rates)
    assert not any("concurrency" in level for level in written["levels"])


# ------------------------------------------------------------------ which arms


def test_arms_may_be_left_out_where_they_are_clear():
    points = points_of(FALLING)
    named = find_verdict(points, Analysis(compare=(("ngram", "plain"),)))
    assert named == judge(points)
    called = find_verdict(points.replace({"plain": "baseline-1"}), Analysis())
    assert (called.variant, called.baseline) == ("ngram", "baseline-1")
    assert find_verdict(points, Analysis(), variant="ngram") == judge(points)


def test_arms_that_are_not_clear_are_asked_for():
    with pytest.raises(CampaignError, match="ngram, plain, and it is not clear"):
        find_verdict(points_of(FALLING), Analysis())


# ------------------------------------------------------------------ drift and noise floor


def test_drift_is_a_caveat_if_it_is_real_and_large():
    points = with_sessions(points_of(FALLING, trials=4))
    started_h = points["session_started_at"] / HOUR
    steady = judge(points)
    assert "drift" not in {c["code"] for c in steady.caveats}
    assert abs(steady.drift.over_span) < 0.02
    points[THROUGHPUT] *= np.exp(-0.001 * started_h)
    verdict = judge(points)
    assert verdict.drift.per_h == pytest.approx(-0.001, abs=2e-4)
    assert verdict.drift.per_h_lo < -0.001 < verdict.drift.per_h_hi
    (caveat,) = [c for c in verdict.caveats if c["code"] == "drift"]
    assert "worsened by 13" in caveat["text"]
    assert [level.label for level in verdict.levels] == [level.label for level in steady.levels]


def test_without_start_times_there_is_no_drift():
    assert judge(points_of(FALLING)).drift is None


def test_a_coarse_crossing_is_always_a_caveat():
    for ratios, said in (({1: 1.5, 2: 0.8, 3: 0.7}, "neighbours"), (FALLING, "provisional")):
        (caveat,) = [c for c in judge(points_of(ratios)).caveats if c["code"] == "coarse_crossing"]
        assert said in caveat["text"]


def test_a_second_baseline_gives_the_noise_floor():
    twin = points_of({1: 1.0, 4: 1.0, 16: 1.0}, noise=0.02, variant="plain-again")
    twin["server_digest"] = "00000000"
    small = points_of({1: 1.02, 4: 1.02, 16: 1.02}, noise=0.002)
    small["server_digest"] = np.where(small["variant"] == "ngram", "11111111", "00000000")
    a_a = find_verdict(twin, Analysis(), variant="plain-again", baseline="plain", workload="code")
    judged, same = with_noise_floor([judge(small), a_a])
    assert (same.same_configuration, judged.same_configuration) == (True, False)
    assert same.noise_floor is None
    assert judged.noise_floor == a_a.equivalence_margin_supported > 0.02
    assert judged.caveats[-1]["code"] == "below_noise_floor"
    (clear, _) = with_noise_floor([judge(points_of({1: 1.6, 4: 1.5, 16: 1.3})), a_a])
    assert clear.noise_floor == judged.noise_floor
    assert "below_noise_floor" not in {c["code"] for c in clear.caveats}


# ------------------------------------------------------------------ odd levels


def test_a_level_that_is_no_number_of_requests_is_left_out():
    points = points_of({1: 1.5, 1.5: 0.5, 3: 1.4})
    verdict = judge(points)
    assert [level.concurrency for level in verdict.levels] == [1, 3]
    assert {reason for row in verdict.bad_rows for reason in row["reasons"]} == {"bad_concurrency"}
    rates = points_of({0: 1.5, 2: 0.8, 4: 0.7}).rename(columns={"concurrency": "request_rate"})
    rated = judge(
        rates.assign(decode_rate_tokens_per_s=rates[THROUGHPUT] + 1), metric="decode_rate"
    )
    assert [level.concurrency for level in rated.levels] == [2, 4]


@pytest.mark.parametrize("trials", [1, 3])
def test_a_goodput_of_zero_everywhere_is_told(trials):
    points = points_of({1: 1.0, 8: 1.0}, trials).assign(goodput_requests_per_s=0.0)
    told = judge(points, metric="goodput").to_dict()["sentence"]
    assert told
    assert "nan" not in told


# ------------------------------------------------------------------ the page about it


def test_the_example_of_the_page_prints_what_the_page_says(capsys):
    page = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text()
    exec(page.split("```python\n")[1].split("```")[0], {})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "crossover (8, 64)"
    assert f"It prints `{first}`" in page
    assert "faster up to concurrency" in second


def test_the_page_names_every_field():
    page = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text()
    fields = judge(points_of(FALLING)).to_dict().keys()
    assert [f for f in fields if f"`{f}`" not in page] == []
