"""Which variant to run where, and where to switch."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from crossover.campaign import Analysis
from crossover.policy import policy
from crossover.verdict import find_verdict

LEVELS = (1, 4, 16, 64)


def points_of(curves, trials=3, noise=0.003, workload="code"):
    rng = np.random.default_rng(1)
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
def test_a_variant_missing_at_a_level_is_not_chosen_there(missing):
    points = points_of({"plain": (1, 1, 1, 1), "ngram": (1.5, 1.4, 0.9, 0.8)})
    points = points[(points["variant"] != missing) | (points["concurrency"] != 64)]
    last = policy_of(points)[0]["workloads"][0]["runs"][-1]
    assert last["variant"] == {"plain": "ngram", "ngram": "plain"}[missing]
    assert not last["supported"]
