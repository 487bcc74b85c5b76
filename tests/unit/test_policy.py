"""Which variant to run where, and where to switch."""

import dataclasses
import json
import math

import numpy as np
import pandas as pd
import pytest

from crossover.campaign import Analysis, Model, Speculation, Variant
from crossover.policy import policy
from crossover.verdict import find_verdict

LEVELS = (1, 4, 16, 64)


def points_of(curves, trials=3, noise=0.003, workload="code", seed=1):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "workload": workload,
            "variant": variant,
            "trial": trial,
            "concurrency": level,
            "output_throughput_tokens_per_s": 3000
            * level
            / (level + 30)
            * ratio
            * math.exp(rng.normal(0, noise)),
        }
        for trial in range(1, trials + 1)
        for variant, ratios in curves.items()
        for level, ratio in zip(LEVELS, ratios, strict=True)
    )


def policy_of(points, analysis=None):
    analysis = analysis or Analysis()
    verdicts = [
        find_verdict(
            points[points["workload"] == workload], analysis, variant=variant, baseline="plain"
        )
        for workload in points["workload"].unique()
        for variant in points["variant"].unique()
        if variant != "plain"
    ]
    result = policy(points, verdicts, analysis)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    return result, verdicts


CURVES = {"plain": (1, 1, 1, 1), "eagle3": (2, 1.7, 1.1, 0.7), "ngram": (1.3, 1.3, 1.25, 0.9)}


def test_runs_of_the_best_variant():
    result, _ = policy_of(points_of(CURVES))
    (code,) = result["workloads"]
    assert code["runs"] == [
        {"from_concurrency": 1, "to_concurrency": 4, "variant": "eagle3", "supported": True},
        {"from_concurrency": 16, "to_concurrency": 16, "variant": "ngram", "supported": True},
        {"from_concurrency": 64, "to_concurrency": 64, "variant": "plain", "supported": True},
    ]
    assert "measure the switching configuration" in result["advice"]


def test_the_baseline_is_kept_within_the_margin():
    points = points_of({"plain": (1, 1, 1, 1), "ngram": (1.5, 1.03, 1.03, 0.7)}, noise=0.001)
    of_variant = [r["variant"] for r in policy_of(points)[0]["workloads"][0]["runs"]]
    assert of_variant == ["ngram", "plain"]
    wide, _ = policy_of(points, Analysis(margin=0.05))
    assert [(r["variant"], r["to_concurrency"]) for r in wide["workloads"][0]["runs"]] == [
        ("ngram", 1),
        ("plain", 16),
        ("plain", 64),
    ]


def test_one_trial_supports_nothing():
    result, _ = policy_of(points_of(CURVES, trials=1))
    assert not any(run["supported"] for run in result["workloads"][0]["runs"])
    assert result["workloads"][0]["switching"] == []


def test_thresholds_lie_outside_the_interval():
    result, verdicts = policy_of(points_of({k: CURVES[k] for k in ("plain", "eagle3")}))
    (crossing,) = verdicts[0].crossings
    (switch,) = result["workloads"][0]["switching"]
    assert switch["variant"] == "eagle3"
    assert switch["off_at_least"] >= max(crossing.ci[1], 1.05 * crossing.c_star)
    assert switch["on_at_most"] <= min(crossing.ci[0], crossing.c_star / 1.05)
    assert switch["off_at_least"] - crossing.ci[1] < 1 + 0.05 * crossing.c_star


def test_a_variant_that_pays_at_high_load_is_switched_on_there():
    result, verdicts = policy_of(points_of({"plain": (1, 1, 1, 1), "eagle3": (0.7, 0.8, 1.2, 1.4)}))
    (switch,) = result["workloads"][0]["switching"]
    assert switch["direction"] == "up"
    assert switch["off_at_most"] < verdicts[0].crossings[0].c_star < switch["on_at_least"]


def test_workloads_are_kept_apart():
    points = pd.concat(
        [
            points_of(CURVES),
            points_of({"plain": (1, 1, 1, 1), "eagle3": (0.5, 0.5, 0.5, 0.5)}, workload="prose"),
        ]
    )
    result, _ = policy_of(points)
    runs = {w["workload"]: [r["variant"] for r in w["runs"]] for w in result["workloads"]}
    assert runs == {"code": ["eagle3", "ngram", "plain"], "prose": ["plain"]}


@pytest.mark.parametrize("missing", ["plain", "ngram"])
def test_a_level_where_nothing_was_compared_has_no_best_variant(missing):
    points = points_of({"plain": (1, 1, 1, 1), "ngram": (1.5, 0.8, 0.8, 0.8)})
    points = points[(points["variant"] != missing) | (points["concurrency"] != 64)]
    runs = policy_of(points)[0]["workloads"][0]["runs"]
    assert [(r["variant"], r["to_concurrency"]) for r in runs] == [("ngram", 1), ("plain", 16)]


# ------------------------------------------------------------------ several variants


def test_the_envelope_crosses_where_the_last_variant_does():
    result, verdicts = policy_of(points_of(CURVES))
    envelope = result["workloads"][0]["envelope"]
    assert envelope["verdict"] == "crossover"
    (crossing,) = envelope["crossings"]
    own = {v.variant: v.crossings[0] for v in verdicts}
    assert crossing["c_star"] == own["ngram"].c_star > own["eagle3"].c_star
    low, high = crossing["ci"]
    assert low <= own["ngram"].ci[0], "one of two variants must pay: 97.5 %"
    assert high == own["ngram"].ci[1]


def test_the_envelope_needs_repeats():
    assert policy_of(points_of(CURVES, trials=1))[0]["workloads"][0]["envelope"] is None


def test_a_second_baseline_is_no_choice():
    points = points_of({"plain": (1, 1, 1, 1), "twin": (1.1, 1.1, 1.1, 1.1)})
    points["server_digest"] = "same"
    assert policy_of(points)[0]["workloads"] == []


# ------------------------------------------------------------------ what switching is worth


SHARES = {1: 1.0, 64: 1.0}


def test_gain_is_that_of_choosing_without_the_trial_that_scores():
    points = points_of({"plain": (1, 1, 1, 1), "eagle3": (2, 1.7, 1.1, 0.7)}, noise=0.0)
    result, _ = policy_of(points, Analysis(load_shares=SHARES))
    gain = result["workloads"][0]["expected_gain"]
    low, high = 3000 / 31, 3000 * 64 / 94
    expected = (2 * low + high) / (low + high) - 1
    assert gain["best_static"] == "plain"
    assert gain["gain"] == pytest.approx(expected)
    assert gain["plug_in"] == pytest.approx(expected)
    assert gain["se"] == pytest.approx(0, abs=1e-9)
    assert gain["trials"] == 3


def test_noise_is_no_gain():
    gains = []
    for seed in range(20):
        even = points_of(dict.fromkeys(("plain", "a", "b"), (1, 1, 1, 1)), 4, 0.15, seed=seed)
        result, _ = policy_of(even, Analysis(load_shares=dict.fromkeys(LEVELS, 1.0)))
        gains.append(result["workloads"][0]["expected_gain"])
    honest, flattering = ([g[key] for g in gains] for key in ("gain", "plug_in"))
    assert np.mean(flattering) > 0.01
    assert abs(np.mean(honest)) < 2 * np.std(honest) / math.sqrt(len(honest))


def test_regret_of_a_threshold_within_the_interval():
    points = points_of({"plain": (1, 1, 1, 1), "eagle3": (2, 1.7, 1.1, 0.7)})
    shares = {4: 1.0, 16: 1.0, 24: 1.0, 64: 1.0}
    result, verdicts = policy_of(points, Analysis(load_shares=shares))
    low, high = verdicts[0].crossings[0].ci
    assert low < 24 < high
    (switch,) = result["workloads"][0]["switching"]
    assert 0 < switch["regret_max"] < 0.1
    certain, _ = policy_of(points, Analysis(load_shares={4: 1.0, 64: 1.0}))
    assert certain["workloads"][0]["switching"][0]["regret_max"] == pytest.approx(0)


def test_shares_outside_the_measured_levels_give_no_gain():
    result, _ = policy_of(points_of(CURVES), Analysis(load_shares={128: 1.0}))
    assert result["workloads"][0]["expected_gain"] is None


def test_without_shares_nothing_is_claimed():
    (code,) = policy_of(points_of(CURVES))[0]["workloads"]
    assert code["expected_gain"] is None
    assert {switch["regret_max"] for switch in code["switching"]} == {None}


# ------------------------------------------------------------------ in the engine's own terms


def own_terms(engine, drafted):
    """The policy's setting, and the last whole concurrency at which ngram pays."""
    points = points_of(CURVES)
    _, verdicts = policy_of(points)
    variants = {
        name: Variant(name, engine, Model("m"), speculation=speculation)
        for name, speculation in drafted.items()
    }
    (crossing,) = next(v for v in verdicts if v.variant == "ngram").crossings
    result = policy(points, verdicts, Analysis(), variants)
    return result["workloads"][0]["own_terms"], math.floor(crossing.c_star)


DRAFTED = {
    "plain": None,
    "eagle3": Speculation("eagle3", 5),
    "ngram": Speculation("eagle3", 2),
}


def test_vllm_takes_the_policy_as_ranges_of_batch_sizes():
    found, last = own_terms("vllm", DRAFTED)
    assert found == {
        "engine": "vllm",
        "settings": {
            "speculative-config": {
                "num_speculative_tokens": 5,
                "num_speculative_tokens_per_batch_size": [
                    [1, 4, 5],
                    [5, last, 2],
                    [last + 1, 64, 0],
                ],
            }
        },
    }


def test_sglang_takes_the_policy_as_candidates_by_batch_size():
    found, last = own_terms("sglang", DRAFTED)
    assert found["settings"]["speculative-num-steps"] == 5
    assert found["settings"]["speculative-adaptive-config"] == {
        "1": {"candidate_steps": [5]},
        "5": {"candidate_steps": [2]},
        str(last + 1): {"candidate_steps": [0]},
    }


@pytest.mark.parametrize(
    ("engine", "changed"),
    [
        ("llamacpp", Speculation("eagle3", 2)),
        ("vllm", Speculation("eagle3")),
        ("vllm", Speculation("ngram", 2)),
    ],
    ids=["no such switch", "drafted tokens not known", "two methods"],
)
def test_what_one_switch_cannot_say_gives_no_setting(engine, changed):
    assert own_terms(engine, {**DRAFTED, "ngram": changed})[0] is None


# ------------------------------------------------------------------ arms that lack something


def test_an_arm_that_cannot_be_compared_is_not_recommended():
    points = points_of({"plain": (1, 1, 1, 1), "other": (2, 2, 2, 2)})
    verdict = find_verdict(points, Analysis(), variant="other", baseline="plain")
    apart = dataclasses.replace(verdict, verdict="not_comparable", reasons=("hardware_differs",))
    analysis = Analysis(load_shares={1: 1, 64: 1})
    (code,) = policy(points, [apart], analysis)["workloads"]
    assert code["runs"] == code["switching"] == []
    assert code["envelope"] is code["expected_gain"] is None


def test_nothing_is_said_against_a_variant_that_was_not_repeated():
    points = points_of({"plain": (1, 1, 1, 1), "slow": (0.6,) * 4, "once": (2,) * 4})
    points = points[(points["variant"] != "once") | (points["trial"] == 1)]
    envelope = policy_of(points)[0]["workloads"][0]["envelope"]
    assert {level["label"] for level in envelope["levels"]} == {"?"}
    assert envelope["verdict"] != "baseline_faster_throughout"
