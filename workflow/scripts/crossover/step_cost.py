"""Why speculation stops paying: what a speculating step yields and what it costs (docs/why.md).

A(C), tokens per step, is counted by the engine. κ(C) = A(C) / ratio(C), the relative step cost,
is what a speculating step takes in steps of the plain server at the same level: speculation pays
where A > κ. With time per output token b + p without and s/A + p' with speculation (p, p': prefill
per output token) κ is a line in A: κ = κ₀ + φA, κ₀ = s/(b + p), φ = p'/(b + p). It breaks even at
A = κ₀/(1 - φ). Two arms that differ in acceptance alone give the line; one gives a bound, since
0 ≤ φ < 1: where it pays it breaks even at κ or below, where it does not at κ or above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from crossover.stats.model import LogRatio, fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crossover.stats.model import Observation, Settings


@dataclass(frozen=True)
class StepCost:
    """One level. Costs are in steps of the plain server, intervals at the confidence asked for."""

    concurrency: float
    tokens_per_step: float
    """A, as measured"""
    step_cost: float
    """κ"""
    step_cost_lo: float | None
    """None: nothing was repeated"""
    step_cost_hi: float | None
    pays: bool | None
    """A is beyond the interval of κ, above it; None: within it, or nothing was repeated"""
    fixed_cost: float | None = None
    """κ₀, cost at no tokens: the step without its share of prefill; None: from one arm"""
    cost_per_token: float | None = None
    """φ, prefill's share of a plain token's time; None: from one arm"""
    break_even_tokens_per_step: float | None = None
    """A at which the arms are equally fast; None: none, more acceptance does not help, or unknown"""
    break_even_lo: float | None = None
    """None: no lower end, or not known"""
    break_even_hi: float | None = None
    break_even_is: str = "equal"
    """equal; from one arm at_most or at_least: the true one is not above, not below that; or,
    where it is not known whether the arm pays, unknown"""
    break_even_acceptance_length: float | None = None
    """the same as 1 + accepted tokens a verification; None: not reachable, or lengths unknown"""


@dataclass(frozen=True)
class CostLine:
    """κ as a line in A at every level, through one arm (flat: φ = 0, a bound) or two.

    Arrays have one entry an arm, then one a level.
    """

    levels: np.ndarray
    tokens_per_step: np.ndarray
    log_ratio: np.ndarray
    """ln(arm / baseline)"""
    covariance: np.ndarray
    """[arm, arm, level, level] of `log_ratio`; NaN where nothing was repeated"""
    df: np.ndarray
    """by level"""
    log_baseline: np.ndarray
    baseline_variance: np.ndarray
    variant_variance: np.ndarray

    @property
    def step_cost(self) -> np.ndarray:
        """κ of each arm."""
        return self.tokens_per_step * np.exp(-self.log_ratio)

    @property
    def is_bound(self) -> bool:
        """Whether one arm alone was there, so that φ is not known."""
        return len(self.tokens_per_step) == 1


def cost_line(
    baseline: Sequence[Observation],
    arms: Sequence[Sequence[Observation]],
    tokens_per_step: Sequence[Mapping[float, float]],
    settings: Settings,
) -> CostLine | None:
    """The line through one or two speculating arms; None if no level has all that it takes.

    The arms' ratios share the baseline. Their covariance is that which makes the variance of
    their difference equal to that of the arms compared directly, 2 Cov = V₁ + V₂ - V₁₂.

    Args:
        baseline: ln of output throughput of the plain server.
        arms: the same of the variant and, where there is one, of its partner.
        tokens_per_step: A by level of each arm.
        settings: of the verdict.
    """
    levels = {o.level for o in baseline}
    for arm, tokens in zip(arms, tokens_per_step, strict=True):
        levels &= {o.level for o in arm} & tokens.keys()
    if not levels:
        return None
    baseline, *arms = ([o for o in side if o.level in levels] for side in (baseline, *arms))
    ratios = [fit(baseline, arm, settings) for arm in arms]
    between = fit(*arms, settings) if len(arms) == 2 else None
    at = ratios[0].levels
    return CostLine(
        levels=at,
        tokens_per_step=np.array([[tokens[c] for c in at.tolist()] for tokens in tokens_per_step]),
        log_ratio=np.array([ratio.log_ratio for ratio in ratios]),
        covariance=_joint_covariance(ratios, between),
        df=np.min([ratio.df for ratio in ratios], axis=0),
        log_baseline=ratios[0].log_baseline,
        baseline_variance=ratios[0].baseline_variance,
        variant_variance=np.max([ratio.variant_variance for ratio in ratios], axis=0),
    )


def _joint_covariance(ratios: Sequence[LogRatio], between: LogRatio | None) -> np.ndarray:
    if between is None:
        return ratios[0].covariance[None, None]
    first, second = (ratio.covariance for ratio in ratios)
    shared = (first + second - between.covariance) / 2
    joint = np.block([[first, shared], [shared.T, second]])
    if np.isfinite(joint).all():
        # three separate fits need not agree on one valid matrix: the nearest one
        values, vectors = np.linalg.eigh(joint)
        joint = (vectors * np.maximum(values, 0.0)) @ vectors.T
    n = len(first)
    return joint.reshape(2, n, 2, n).swapaxes(1, 2)


def step_costs(
    line: CostLine, confidence: float, output_tokens: float | None
) -> tuple[StepCost, ...]:
    """A, κ and the break-even of the line's first arm at every level.

    Args:
        line: through the arm and perhaps a partner.
        confidence: of the intervals, two-sided.
        output_tokens: mean length of an answer; None: not known.
    """
    return tuple(_at_level(line, i, confidence, output_tokens) for i in range(len(line.levels)))


def _at_level(line: CostLine, i: int, confidence: float, output_tokens: float | None) -> StepCost:
    tokens, costs = line.tokens_per_step[:, i], line.step_cost[:, i]
    t = float(stdtrit(line.df[i], (1 + confidence) / 2))
    half = t * math.sqrt(line.covariance[0, 0, i, i])
    lo, hi = (None, None) if half != half else (costs[0] * math.exp(s * half) for s in (-1, 1))
    pays = None if lo is None or lo <= tokens[0] <= hi else bool(tokens[0] > hi)
    known = {
        "concurrency": line.levels[i].item(),
        "tokens_per_step": tokens[0],
        "step_cost": costs[0],
        "step_cost_lo": lo,
        "step_cost_hi": hi,
        "pays": pays,
    }
    if line.is_bound:
        if pays is None:
            return StepCost(**known, break_even_is="unknown")
        return StepCost(
            **known,
            break_even_tokens_per_step=costs[0],
            break_even_lo=None if pays else lo,
            break_even_hi=hi if pays else None,
            break_even_is="at_most" if pays else "at_least",
            break_even_acceptance_length=acceptance_length_of(costs[0], output_tokens),
        )
    slope = (costs[1] - costs[0]) / (tokens[1] - tokens[0])
    fixed = costs[0] - slope * tokens[0]
    even = fixed / (1 - slope) if slope < 1 else None
    low, high = _break_even_interval(tokens, costs, line.covariance[:, :, i, i], t)
    return StepCost(
        **known,
        fixed_cost=fixed,
        cost_per_token=slope,
        break_even_tokens_per_step=even,
        break_even_lo=low,
        break_even_hi=high,
        break_even_acceptance_length=acceptance_length_of(even, output_tokens),
    )


def _break_even_interval(
    tokens: np.ndarray, costs: np.ndarray, covariance: np.ndarray, t: float
) -> tuple[float | None, float | None]:
    """All A at which the gain A - κ(A) may be 0 (Fieller); None at an end that is open.

    The gain is a line through the arms' gains e₁, e₂: e(w) = e₁ + w(e₂ - e₁), zero where
    e(w)² ≤ t²·Var e(w), a quadratic inequality in w.
    """
    gain = tokens - costs
    noise = np.outer(costs, costs) * covariance
    step = np.array([-1.0, 1.0])
    rise, spread = gain @ step, step @ noise @ step
    shared = noise[0] @ step
    a = rise**2 - t**2 * spread
    b = gain[0] * rise - t**2 * shared
    c = gain[0] ** 2 - t**2 * noise[0, 0]
    if not a > 0 or rise / (tokens[1] - tokens[0]) <= 0:
        return None, None
    root = math.sqrt(max(b**2 - a * c, 0.0))
    ends = tokens[0] + (tokens[1] - tokens[0]) * np.array([-b - root, -b + root]) / a
    return float(ends.min()), float(ends.max())


# ------------------------------------------------------------------ another acceptance


def tokens_per_step_of(acceptance_length: float, output_tokens: float) -> float:
    """A of answers of `output_tokens`: one token of the prefill, the rest in verified steps."""
    return output_tokens / (1 + (output_tokens - 1) / acceptance_length)


def acceptance_length_of(
    tokens_per_step: float | None, output_tokens: float | None
) -> float | None:
    """The inverse of `tokens_per_step_of`; None where a side is not known or cannot be reached."""
    if tokens_per_step is None or output_tokens is None or tokens_per_step >= output_tokens:
        return None
    return (output_tokens - 1) / (output_tokens / tokens_per_step - 1)


def predict(line: CostLine, tokens_per_step: float) -> LogRatio | None:
    """The ratio at another acceptance, with its covariance by the delta method.

    κ* = Σ wκ along the line, ln ratio* = ln A* - ln κ*. From one arm κ* is that of φ = 0.

    Returns:
        As of a fit, so that the rules of a verdict apply; None where the line gives no cost: the
        acceptance is too far from those that were measured.
    """
    weights = np.ones((1, len(line.levels)))
    if not line.is_bound:
        first, second = line.tokens_per_step
        along = (tokens_per_step - first) / (second - first)
        weights = np.array([1 - along, along])
    cost = (weights * line.step_cost).sum(axis=0)
    return _ratio_at(line, tokens_per_step, cost, weights) if (cost > 0).all() else None


def predict_with_most_prefill(line: CostLine, tokens_per_step: float) -> LogRatio:
    """The other end of what one arm leaves open: φ = 1, or κ₀ = 0 where that comes first.

    κ* = κ + φ(A* - A) with φ = min(1, κ/A). Where the arm pays, κ < A, that is κ* = κA*/A: the
    ratio stays as it was measured.
    """
    (measured,), (cost,) = line.tokens_per_step, line.step_cost
    pays = cost < measured
    at = np.where(pays, cost * tokens_per_step / measured, cost + tokens_per_step - measured)
    return _ratio_at(line, tokens_per_step, at, np.where(pays, at / cost, 1.0)[None])


def _ratio_at(
    line: CostLine, tokens_per_step: float, cost: np.ndarray, weights: np.ndarray
) -> LogRatio:
    """The ratio at κ* = `cost`, of which the derivatives by the arms' κ are `weights`."""
    shares = weights * line.step_cost / cost
    untried = np.zeros(len(line.levels), int)
    return LogRatio(
        levels=line.levels,
        log_ratio=math.log(tokens_per_step) - np.log(cost),
        covariance=np.einsum("ai,abij,bj->ij", shares, line.covariance, shares),
        df=line.df,
        log_baseline=line.log_baseline,
        baseline_variance=line.baseline_variance,
        variant_variance=line.variant_variance,
        baseline_trials=untried,
        variant_trials=untried,
        paired=False,
        n_trials=0,
        tau=math.nan,
        window_cv=np.full(len(line.levels), np.nan),
        reasons=(),
    )
