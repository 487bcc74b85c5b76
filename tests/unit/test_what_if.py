"""Why a variant pays where it does, and what another acceptance would change."""

import json
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from crossover.campaign import (
    Analysis,
    Campaign,
    Load,
    Model,
    Speculation,
    Variant,
    WhatIf,
    Workload,
)
from crossover.engines import get
from crossover.engines.simulated import settings
from crossover.engines.simulated_model import steps_per_request, true_crossovers, true_throughput
from crossover.records import POINTS, SESSIONS, to_table
from crossover.step_cost import StepCost
from crossover.verdicts import judge
from crossover.why_sentence import level_sentence

LEVELS = (1, 4, 8, 16, 24, 32, 64, 128)
OUT, IN = 64, 120.0
MODEL = Model("simulated")
SPECULATES = {"drafted-tokens": 3, "draft-ms": 0.8}
ARGS = {
    "plain": {},
    "low": SPECULATES | {"acceptance": 0.5},
    "high": SPECULATES | {"acceptance": 0.85},
}
ASKED = 0.7


def acceptance_length(acceptance):
    return (OUT - 1) / (steps_per_request(at_acceptance(acceptance), OUT) - 1)


def campaign(args=ARGS, method="simulated", asked=(ASKED,)):
    variants = {
        name: Variant(
            name,
            "simulated",
            MODEL,
            args=own,
            speculation=Speculation(method, 3) if own else None,
        )
        for name, own in args.items()
    }
    return Campaign(
        "c",
        "plain",
        MODEL,
        variants,
        {"chat": Workload("chat", "p", "0", max_tokens=OUT, temperature=0.5)},
        Load(LEVELS),
        Analysis(what_if=WhatIf(tuple(map(acceptance_length, asked))) if asked else None),
    )


def results(c, *, noise=0.004, trials=3, levels=LEVELS, **columns):
    """Points and sessions of the model, with each arm's own noise and its counters."""
    rng = np.random.default_rng(5)
    points, sessions = [], []
    for name, variant in c.variants.items():
        arm = settings(variant)
        steps = steps_per_request(arm, OUT)
        for trial in range(1, trials + 1):
            session_id = f"{name}-{trial}"
            command = get("simulated").command(variant, MODEL)
            port = str(4000 + len(sessions))
            sessions.append(
                {
                    "variant": name,
                    "trial": trial,
                    "session_id": session_id,
                    "engine": "simulated",
                    "command": [port if word == "{port}" else word for word in command],
                    "env": {},
                    "host": "h",
                    "boot_id": "b",
                    "hardware": '{"cpu": "x"}',
                    "engine_version": "simulated 1",
                    "started_at": 1e9 + 100 * trial,
                    "speculation_method": variant.speculation and variant.speculation.method,
                    "description": json.dumps(
                        {
                            "max_running_requests": 256,
                            "front_end_processes": 1,
                            "resolved": {"acceptance": arm.acceptance, "port": port},
                        }
                    ),
                }
            )
            for level in levels:
                answers = 100.0
                verified = answers * (steps - 1)
                points.append(
                    {
                        "workload": "chat",
                        "variant": name,
                        "trial": trial,
                        "concurrency": level,
                        "session_id": session_id,
                        "valid": True,
                        "invalid_reasons": [],
                        "requests": int(answers),
                        "prompt_tokens_mean": IN,
                        "output_tokens_mean": float(OUT),
                        "output_throughput_tokens_per_s": true_throughput(arm, level, OUT, IN)
                        * math.exp(noise * rng.standard_normal()),
                    }
                    | (
                        {
                            "engine_output_tokens": answers * OUT,
                            "accepted_tokens": answers * (OUT - steps),
                            "verify_steps": verified,
                            "drafted_tokens": 3 * verified,
                            "tokens_per_step": OUT / steps,
                        }
                        | columns
                        if arm.drafted_tokens
                        else {}
                    )
                )
    return to_table(points, POINTS).to_pandas(), to_table(sessions, SESSIONS).to_pandas()


def explained(c=None, variant="high", **kwargs):
    c = c or campaign()
    verdicts, _ = judge(*results(c, **kwargs), c)
    (found,) = [v for v in verdicts["verdicts"] if v["variant"] == variant]
    json.dumps(found, allow_nan=False)
    return found["break_even"]


def at_acceptance(acceptance):
    return settings(Variant("v", "simulated", MODEL, args=SPECULATES | {"acceptance": acceptance}))


def true_crossover(c, acceptance):
    plain = settings(c.variants["plain"])
    (found,) = true_crossovers(plain, at_acceptance(acceptance), OUT, IN)
    return found


def true_ratio(c, acceptance, level):
    arms = at_acceptance(acceptance), settings(c.variants["plain"])
    ours, theirs = (true_throughput(arm, level, OUT, IN) for arm in arms)
    return ours / theirs


def test_two_arms_that_differ_in_acceptance_alone_predict_a_third():
    c = campaign()
    why = explained(c)
    assert why["partner"] == "low"
    assert why["reason"] is None
    (prediction,) = why["what_if"]
    assert prediction["bound"] is None
    (crossing,) = prediction["crossings"]
    low, high = crossing["ci"]
    assert low <= true_crossover(c, ASKED) <= high
    assert high / low < 1.3
    for level in prediction["levels"]:
        assert level["lo"] < true_ratio(c, ASKED, level["concurrency"]) < level["hi"]
    said = why["sentences"][-1]
    assert "(from high and low)" in said
    assert f"would cross at concurrency {math.floor(crossing['c_star'])}" in said
    assert said.endswith("This is a prediction: measure it before relying on it.")


def test_a_partner_that_differs_in_more_is_none():
    args = ARGS | {"low": ARGS["low"] | {"draft-ms": 0.9}}
    why = explained(campaign(args))
    assert why["partner"] is None
    assert {level["break_even_is"] for level in why["levels"]} == {"at_most", "at_least"}
    assert why["levels"][0]["fixed_cost"] is None
    assert any("Break-even is a bound" in said for said in why["sentences"])


def test_a_partner_of_nearly_the_same_acceptance_is_none():
    why = explained(campaign(ARGS | {"low": ARGS["low"] | {"acceptance": 0.84}}))
    assert why["partner"] is None


@pytest.mark.parametrize(("measured", "bound"), [("high", "at_least"), ("low", "at_most")])
def test_one_arm_says_where_another_acceptance_is_sure_to_pay_and_sure_not_to(measured, bound):
    c = campaign({name: ARGS[name] for name in ("plain", measured)})
    why = explained(c, measured)
    (prediction,) = why["what_if"]
    assert prediction["bound"] == bound
    truth = true_crossover(c, ASKED)
    by_label = defaultdict(list)
    for level in prediction["levels"]:
        by_label[level["label"]].append(level["concurrency"])
        assert level["lo"] < true_ratio(c, ASKED, level["concurrency"]) < level["hi"]
    assert max(by_label["+"]) < truth < min(by_label["-"])
    (crossing,) = prediction["crossings"]
    assert crossing["bracket"] == [max(by_label["+"]), min(by_label["-"])]
    low, high = crossing["ci"]
    assert max(by_label["+"]) <= low < truth < high <= min(by_label["-"])
    assert prediction["censored"] is None
    said = why["sentences"][-1]
    assert f"would pay at concurrency {', '.join(map(str, by_label['+']))} " in said
    assert f"not at {', '.join(map(str, by_label['-']))}" in said
    assert f"cross between {math.floor(low)} and {math.ceil(high)}" in said


def test_one_arm_that_pays_throughout_would_with_more_acceptance():
    c = campaign({name: ARGS[name] for name in ("plain", "low")}, asked=(0.75,))
    why = explained(c, "low", levels=(1, 4))
    (prediction,) = why["what_if"]
    assert [level["label"] for level in prediction["levels"]] == ["+", "+"]
    assert prediction["censored"] == {"side": "above", "bound": 4}
    assert "a crossover, if any, lies above 4" in why["sentences"][-1]


def test_the_acceptance_that_was_measured_needs_no_prediction():
    args = {name: ARGS[name] for name in ("plain", "high")}
    (prediction,) = explained(campaign(args, asked=(0.85,)))["what_if"]
    assert prediction["reason"] == "acceptance_as_measured"
    assert prediction["levels"] == []


@pytest.mark.parametrize(
    ("method", "columns", "reason", "words"),
    [
        ("ngram", {}, "drafts_from_text", "drafts only where the text repeats"),
        ("eagle3", {"verify_steps": 10.0}, "drafting_varies", "not every step drafts"),
        ("eagle3", {"verify_steps": None}, "drafting_unknown", "does not count"),
    ],
)
def test_drafting_that_is_not_constant_is_explained_and_not_predicted(
    method, columns, reason, words
):
    why = explained(campaign(method=method), **columns)
    assert why["reason"] == reason
    assert why["partner"] is None
    assert why["what_if"] == []
    assert len(why["levels"]) == len(LEVELS)
    assert words in why["sentences"][-1]


def test_an_engine_that_counts_no_drafts_explains_nothing():
    why = explained(tokens_per_step=None)
    assert why["reason"] == "acceptance_unknown"
    assert why["levels"] == []
    assert why["sentences"] == ["Cannot tell why: no count of accepted drafts is on record."]


def test_nothing_asked_nothing_predicted():
    why = explained(campaign(asked=()))
    assert why["what_if"] == []
    assert why["levels"][0]["fixed_cost"] > 0


def test_a_single_trial_gives_costs_without_intervals_and_no_crossing():
    why = explained(trials=1)
    assert why["levels"][0]["step_cost_lo"] is None
    assert {level["pays"] for level in why["levels"]} == {None}
    assert "plain steps: cannot tell whether it pays" in why["sentences"][0]
    (prediction,) = why["what_if"]
    assert prediction["crossings"] == []
    assert prediction["levels"][0]["label"] is None


# ------------------------------------------------------------------ sentences


def cost(**fields):
    return StepCost(
        **{
            "concurrency": 100,
            "tokens_per_step": 2.55,
            "step_cost": 2.45,
            "step_cost_lo": 2.4,
            "step_cost_hi": 2.5,
            "pays": True,
            "break_even_tokens_per_step": 2.4,
        }
        | fields
    )


def test_a_level_in_words():
    assert level_sentence(cost()) == (
        "At concurrency 100 a speculating step yields 2.55 tokens and costs 2.45 plain steps (2.40–2.50): "
        "it pays while it yields more than 2.40."
    )
    with_interval = cost(break_even_lo=2.3, break_even_hi=2.5)
    assert level_sentence(with_interval).endswith("more than 2.40 (2.30–2.50).")
    assert "it does not pay; it would if it yielded more than 2.70" in level_sentence(
        cost(step_cost=2.68, pays=False, break_even_tokens_per_step=2.7)
    )
    assert level_sentence(replace(with_interval, pays=None)).endswith(
        ": cannot tell whether it pays; it does if it yields more than 2.40 (2.30–2.50)."
    )
    assert level_sentence(cost(break_even_is="at_most")).endswith(
        "more than 2.40, and perhaps below."
    )
    assert "would not below 2.68" in level_sentence(
        cost(step_cost=2.68, pays=False, break_even_tokens_per_step=2.68, break_even_is="at_least")
    )
    assert level_sentence(
        cost(pays=None, break_even_tokens_per_step=None, break_even_is="unknown")
    ).endswith(": cannot tell whether it pays.")
    assert "more acceptance would not" in level_sentence(cost(break_even_tokens_per_step=None))
