"""Verdicts, blocks and sentences."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crossover import records
from crossover.blocks import Launch, form_blocks
from crossover.campaign import Analysis
from crossover.errors import CampaignError
from crossover.stats.model import Settings
from crossover.verdict import find_verdict, sentence, usable_points

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


def table(name, metric_column="throughput_tok_s", column=THROUGHPUT, scale=1.0):
    """A published table as points: one trial, no session facts."""
    published = pd.read_csv(TABLES / f"{name}.csv")
    return pd.DataFrame(
        {
            "variant": ["plain" if c.startswith("baseline") else c for c in published["config"]],
            "trial": 1,
            "concurrency": published["concurrency"],
            column: published[metric_column] * scale,
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


def test_another_engine_version_is_a_caveat_and_no_pair():
    points = with_sessions(points_of(FALLING))
    points.loc[points["variant"] == "ngram", "engine_version"] = "1.1"
    verdict = judge(points)
    assert not verdict.paired
    assert verdict.caveats[0]["code"] == "engine_version_differs"
    assert "plain: 1.0; ngram: 1.1" in verdict.caveats[0]["text"]


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
    ("metric", "column", "labels"),
    [("tpot", "tpot_s_p50", "+++"), ("ttft", "ttft_s_p50", "+?-")],
)
def test_the_answer_depends_on_the_metric(metric, column, labels):
    points = table("mtp7_dflash_latency_only", f"{metric}_p50_ms", column, scale=1e-3)
    verdict = judge(points, variant="mtp7", metric=metric)
    assert "".join(verdict.indicative["labels"]) == labels
    assert sentence(verdict).startswith("Time ")
    first = verdict.levels[0]
    assert first.ratio == pytest.approx(first.baseline_mean / first.variant_mean)


def test_latency_gets_no_structural_band():
    points = points_of(FALLING)
    points["tpot_s_p50"] = 1 / points[THROUGHPUT]
    crossing = judge(points, metric="tpot").crossings[0]
    assert crossing.hard == (8.0, 16.0)
    assert crossing.ci != judge(points).crossings[0].ci


def test_usable_points_carry_value_and_whole_level():
    points = points_of({1: 1.5, 4: 1.2}).astype({"concurrency": float})
    usable, bad = usable_points(points, Analysis(), Settings(), ["plain"])
    assert bad == []
    assert {point["concurrency"] for point in usable} == {1, 4}
    assert {point["variant"] for point in usable} == {"plain"}
    assert usable[0]["value"] == usable[0][THROUGHPUT]
