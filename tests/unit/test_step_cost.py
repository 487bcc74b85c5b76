"""Tokens per step, what a step costs, and where speculation breaks even."""

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from crossover import drafting
from crossover.engines.simulated_model import (
    Settings as Server,
)
from crossover.engines.simulated_model import steps_per_request, true_throughput
from crossover.stats.model import Observation, Settings
from crossover.step_cost import (
    acceptance_length_of,
    cost_line,
    predict,
    step_costs,
    tokens_per_step_of,
)

LEVELS = (1, 4, 16, 64)
OUT, IN = 64, 200.0
PLAIN = Server(prefill_ms_per_token=0.05)
SPEC = Server(prefill_ms_per_token=0.05, drafted_tokens=3)
LOW, HIGH = (Server(**{**vars(SPEC), "acceptance": a}) for a in (0.5, 0.8))


def tokens_of(server):
    return OUT / steps_per_request(server, OUT)


def arm(server, *, noise=0.0, trials=3, seed=0, shared=0.0):
    """Observations of a server; `shared` moves all arms' trials alike."""
    rng, alike = np.random.default_rng(seed), np.random.default_rng(99)
    launches = shared * alike.standard_normal(trials)
    return [
        Observation(
            level,
            trial,
            trial,
            trial,
            math.log(true_throughput(server, level, OUT, IN))
            + launches[trial]
            + noise * rng.standard_normal(),
        )
        for trial, level in product(range(trials), LEVELS)
    ]


def flat(server, by=1.0):
    return dict.fromkeys(LEVELS, by * tokens_of(server))


def line_of(*servers, **noise):
    arms = [arm(s, seed=i + 1, **noise) for i, s in enumerate(servers)]
    return cost_line(arm(PLAIN, **noise), arms, [flat(s) for s in servers], Settings())


def test_the_cost_of_a_step_is_tokens_over_ratio_with_the_ratios_interval():
    line = line_of(HIGH, noise=0.01)
    for cost, r, level in zip(step_costs(line, 0.95, OUT), line.log_ratio[0], LEVELS, strict=True):
        assert cost.concurrency == level
        assert cost.step_cost == pytest.approx(tokens_of(HIGH) / math.exp(r))
        assert cost.step_cost_lo < cost.step_cost < cost.step_cost_hi
        # symmetric in ln, as the ratio's is
        assert cost.step_cost_lo * cost.step_cost_hi == pytest.approx(cost.step_cost**2)


def test_the_table_of_an_h200():
    """gpu tables: A = 2.55 and ratios 1.90, 1.17, 1.04, 0.953 give κ 1.34, 2.18, 2.45, 2.68."""
    ratios = {1: 1.90, 70: 1.17, 100: 1.04, 250: 0.953}
    plain, spec = (
        [
            Observation(level, trial, trial, trial, math.log(r) if speculates else 0.0)
            for trial, (level, r) in product(range(3), ratios.items())
        ]
        for speculates in (False, True)
    )
    line = cost_line(plain, [spec], [dict.fromkeys(ratios, 2.55)], Settings())
    costs = step_costs(line, 0.95, 256)
    assert [round(c.step_cost, 2) for c in costs] == [1.34, 2.18, 2.45, 2.68]
    assert [c.break_even_is for c in costs] == ["at_most", "at_most", "at_most", "at_least"]


def test_two_arms_give_the_models_own_costs():
    """κ₀ = s/(b + p) and φ = p/(b + p) of the step-time model, to rounding."""
    line = line_of(LOW, HIGH)
    for cost in step_costs(line, 0.95, OUT):
        batch = cost.concurrency
        context = batch * (IN + OUT / 2)
        plain_ms = PLAIN.step_ms(batch, context, 0)
        prefill_ms = batch * PLAIN.prefill_ms_per_token * IN / OUT
        fixed = SPEC.step_ms(batch, context, 0) / (plain_ms + prefill_ms)
        share = prefill_ms / (plain_ms + prefill_ms)
        assert cost.fixed_cost == pytest.approx(fixed, rel=1e-6)
        assert cost.cost_per_token == pytest.approx(share, rel=1e-6)
        assert cost.break_even_tokens_per_step == pytest.approx(fixed / (1 - share), rel=1e-6)
        assert cost.break_even_is == "equal"


def test_break_even_is_where_the_ratio_is_one():
    line = line_of(LOW, HIGH)
    for i, cost in enumerate(step_costs(line, 0.95, OUT)):
        ratio = predict(line, cost.break_even_tokens_per_step)
        assert ratio.log_ratio[i] == pytest.approx(0.0, abs=1e-9)


def test_the_interval_of_break_even_is_the_acceptances_that_are_not_excluded():
    """Fieller: at its ends the ratio's own interval touches 1, to first order."""
    line = line_of(LOW, HIGH, noise=0.004)
    for i, cost in enumerate(step_costs(line, 0.95, OUT)):
        for end in (cost.break_even_lo, cost.break_even_hi):
            ratio = predict(line, end)
            z = abs(ratio.log_ratio[i]) / ratio.se[i]
            assert z == pytest.approx(stdtrit(line.df[i], 0.975), rel=0.1)


def test_noise_that_hides_the_slope_leaves_the_interval_open():
    line = line_of(LOW, HIGH, noise=1.0)
    costs = step_costs(line, 0.95, OUT)
    assert any(cost.break_even_lo is None and cost.break_even_hi is None for cost in costs)


def test_one_arm_gives_a_bound():
    truth = {c.concurrency: c for c in step_costs(line_of(LOW, HIGH), 0.95, OUT)}
    for server in (LOW, HIGH):
        for cost in step_costs(line_of(server), 0.95, OUT):
            true = truth[cost.concurrency].break_even_tokens_per_step
            if cost.break_even_is == "at_most":
                assert true <= cost.break_even_tokens_per_step
            else:
                assert true >= cost.break_even_tokens_per_step
            assert cost.fixed_cost is None


@pytest.mark.parametrize("servers", [(LOW,), (LOW, HIGH)])
def test_a_cost_whose_interval_holds_the_yield_does_not_tell_whether_it_pays(servers):
    for cost in step_costs(line_of(*servers, noise=0.05), 0.95, OUT):
        beyond = [
            cost.tokens_per_step > cost.step_cost_hi,
            cost.tokens_per_step > cost.step_cost_lo,
        ]
        assert cost.pays is {(True, True): True, (False, False): False}.get(tuple(beyond))
        if cost.pays is None and len(servers) == 1:
            assert cost.break_even_is == "unknown"
            assert cost.break_even_tokens_per_step is cost.break_even_lo is None
    assert None in {c.pays for c in step_costs(line_of(*servers, noise=0.05), 0.95, OUT)}


def test_a_third_acceptance_is_predicted_exactly_where_there_is_no_noise():
    asked = Server(**{**vars(SPEC), "acceptance": 0.65})
    predicted = predict(line_of(LOW, HIGH), tokens_of(asked))
    for level, r in zip(LEVELS, predicted.log_ratio, strict=True):
        true = true_throughput(asked, level, OUT, IN) / true_throughput(PLAIN, level, OUT, IN)
        assert math.exp(r) == pytest.approx(true, rel=1e-9)


def test_at_a_measured_acceptance_the_prediction_is_the_measurement():
    line = line_of(LOW, HIGH, noise=0.01)
    for i, server in enumerate((LOW, HIGH)):
        predicted = predict(line, tokens_of(server))
        assert predicted.log_ratio == pytest.approx(line.log_ratio[i])
        assert predicted.covariance == pytest.approx(line.covariance[i, i])


def test_what_the_arms_share_cancels_between_them():
    """Noise of whole trials moves all arms alike; the ratio and its prediction do not feel it."""
    calm = predict(line_of(LOW, HIGH, noise=0.003), 1.9)
    moved = predict(line_of(LOW, HIGH, noise=0.003, shared=0.2), 1.9)
    assert moved.se == pytest.approx(calm.se)


def test_the_joint_covariance_is_valid():
    line = line_of(LOW, HIGH, noise=0.05)
    n = len(LEVELS)
    joint = line.covariance.swapaxes(1, 2).reshape(2 * n, 2 * n)
    assert np.allclose(joint, joint.T)
    assert np.linalg.eigvalsh(joint).min() > -1e-12


def test_where_more_acceptance_costs_more_than_it_yields_nothing_breaks_even():
    """Arms whose counters are swapped: the better one is said to accept less."""
    swapped = cost_line(arm(PLAIN), [arm(HIGH), arm(LOW)], [flat(LOW), flat(HIGH)], Settings())
    for cost in step_costs(swapped, 0.95, OUT):
        assert cost.cost_per_token > 1
        assert cost.break_even_tokens_per_step is None
        assert cost.break_even_lo is cost.break_even_hi is None
    assert predict(swapped, 0.1) is None  # a step would cost less than nothing


def test_levels_that_one_arm_lacks_are_left_out_and_none_gives_no_line():
    tokens = [flat(LOW), dict.fromkeys(LEVELS[1:], 2.0)]
    line = cost_line(arm(PLAIN), [arm(LOW), arm(HIGH)], tokens, Settings())
    assert line.levels.tolist() == list(LEVELS[1:])
    assert cost_line(arm(PLAIN), [arm(LOW)], [{2: 1.5}], Settings()) is None


def test_without_repeats_there_are_costs_and_no_intervals():
    for cost in step_costs(line_of(LOW, HIGH, trials=1), 0.95, OUT):
        assert cost.step_cost_lo is None
        assert cost.break_even_tokens_per_step > 0
        assert cost.break_even_lo is None


def test_acceptance_length_and_tokens_per_step():
    """A verification gives 2.56 tokens, an answer of 256 tokens 2.545 a step: H200, SGLang."""
    assert tokens_per_step_of(2.56, 256) == pytest.approx(2.545, abs=1e-3)
    assert acceptance_length_of(tokens_per_step_of(2.56, 256), 256) == pytest.approx(2.56)
    steps = steps_per_request(HIGH, OUT)
    assert tokens_per_step_of((OUT - 1) / (steps - 1), OUT) == pytest.approx(OUT / steps)
    assert acceptance_length_of(300.0, 256) is None
    assert acceptance_length_of(2.0, None) is None


# ------------------------------------------------------------------ drafting


def counted(**columns):
    """Two points of an arm that drafts three tokens in every step."""
    one = {
        "concurrency": 4,
        "requests": 10,
        "engine_output_tokens": 500.0,
        "accepted_tokens": 290.0,
        "verify_steps": 200.0,
        "drafted_tokens": 600.0,
        "tokens_per_step": 2.4,
    }
    return pd.DataFrame([one, one | columns])


def test_drafting_that_is_the_same_in_every_step():
    assert drafting.varies(counted(), {"eagle3"}) is None
    assert drafting.varies(counted(), set()) is None


@pytest.mark.parametrize(
    ("columns", "methods", "why"),
    [
        ({}, {"ngram"}, "drafts_from_text"),
        ({}, {"draft", "suffix"}, "drafts_from_text"),
        ({"verify_steps": 120.0, "drafted_tokens": 360.0}, {"eagle3"}, "drafting_varies"),
        ({"drafted_tokens": 400.0}, {"eagle3"}, "drafting_varies"),
        ({"verify_steps": None}, {"eagle3"}, "drafting_unknown"),
    ],
)
def test_drafting_that_is_not(columns, methods, why):
    assert drafting.varies(counted(**columns), methods) == why


def test_drafts_that_the_engine_does_not_count_are_not_held_against_it():
    assert drafting.varies(counted().assign(drafted_tokens=None), {"eagle3"}) is None


def test_tokens_per_step_by_level():
    points = counted(tokens_per_step=2.6)
    assert drafting.tokens_per_step(points) == {4: pytest.approx(math.sqrt(2.4 * 2.6))}
    assert (
        drafting.tokens_per_step(
            points.assign(tokens_per_step=None).astype({"tokens_per_step": float})
        )
        == {}
    )
