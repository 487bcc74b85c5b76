"""Why a variant pays where it does, and where it would pay at another acceptance.

`break_even` fills that field of a verdict; docs/why.md says how it is read.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crossover import drafting, why_sentence
from crossover.arm_settings import description_of, sessions_of
from crossover.parity import compare_arms
from crossover.step_cost import (
    CostLine,
    StepCost,
    cost_line,
    predict,
    predict_with_most_prefill,
    step_costs,
    tokens_per_step_of,
)
from crossover.verdict_rules import Bounds, censored, crossings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from crossover.stats.curve import Crossing
    from crossover.stats.model import LogRatio, Observation, Settings

LEAST_CONTRAST = 0.1
"""Relative difference of two arms' tokens per step from which a line is drawn through them."""

AS_MEASURED = 1.01
"""Factor within which an acceptance is the one that was measured."""


@dataclass(frozen=True)
class PredictedLevel:
    """The ratio that another acceptance would give at a level; bounds hold at all levels together."""

    concurrency: float
    ratio: float
    """from one arm that of φ = 0, which bounds the true one"""
    lo: float | None
    """None: nothing was repeated"""
    hi: float | None
    label: str | None
    """+ variant better, - baseline better, ? unresolved"""


@dataclass(frozen=True)
class Prediction:
    """What follows for another acceptance. Nobody measured it."""

    acceptance_length: float
    """as asked for: 1 + accepted tokens a verification"""
    tokens_per_step: float | None
    """A at that acceptance; None: the answers' length is not known"""
    bound: str | None = None
    """None: the ratios themselves; from one arm at_least or at_most: the true ones are not below,
    above those shown, and the levels' bounds and labels hold for every share of prefill"""
    levels: tuple[PredictedLevel, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    censored: dict[str, Any] | None = None
    """{side, bound} where no sign changes, as of a verdict"""
    reason: str | None = None
    """why there is no prediction"""


@dataclass(frozen=True)
class BreakEven:
    """Why one variant pays where it does against one baseline, under one workload."""

    variant: str
    baseline: str
    partner: str | None = None
    """the arm that differs in acceptance alone; None: the line's slope is not known"""
    reason: str | None = None
    """why there is nothing to say (acceptance_unknown, baseline_speculates), or nothing about another acceptance"""
    levels: tuple[StepCost, ...] = ()
    what_if: tuple[Prediction, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The field `break_even` of a verdict, with its sentences."""
        return {**asdict(self), "sentences": why_sentence.sentences(self)}


def break_even(
    points: pd.DataFrame,
    sessions: pd.DataFrame,
    observations: Mapping[str, Sequence[Observation]],
    *,
    variant: str,
    baseline: str,
    acceptance_lengths: Sequence[float],
    settings: Settings,
) -> BreakEven:
    """Explain one comparison of output throughput.

    Args:
        points: valid rows of records.POINTS of one workload.
        sessions: rows of records.SESSIONS.
        observations: ln of output throughput by variant, of the same points.
        variant: the speculating arm.
        baseline: the plain one.
        acceptance_lengths: those asked for.
        settings: of the verdict.
    """
    known = {"variant": variant, "baseline": baseline}
    mine = points[points["variant"] == variant]
    tokens = {variant: drafting.tokens_per_step(mine)}
    if not tokens[variant]:
        return BreakEven(**known, reason="acceptance_unknown")
    if any(a > 1 for a in drafting.tokens_per_step(points[points["variant"] == baseline]).values()):
        return BreakEven(**known, reason="baseline_speculates")
    reason = drafting.varies(mine, _methods(mine, sessions, variant))
    partner = None
    if reason is None:
        tokens |= {
            other: drafting.tokens_per_step(points[points["variant"] == other])
            for other in _partners(points, sessions, variant, baseline)
        }
        partner = _farthest(tokens, variant)
    arms = [variant] if partner is None else [variant, partner]
    line = cost_line(
        observations[baseline],
        [observations[arm] for arm in arms],
        [tokens[arm] for arm in arms],
        settings,
    )
    if line is None:
        return BreakEven(**known, reason="acceptance_unknown")
    output_tokens = _mean(mine["output_tokens_mean"])
    return BreakEven(
        **known,
        partner=partner,
        reason=reason,
        levels=step_costs(line, settings.confidence, output_tokens),
        what_if=()
        if reason
        else tuple(_predicted(line, a, output_tokens, settings) for a in acceptance_lengths),
    )


def _methods(points: pd.DataFrame, sessions: pd.DataFrame, variant: str) -> set[str | None]:
    """The variant's speculation methods, as declared and as its servers give them."""
    mine = sessions_of(points, sessions, variant)
    declared = {s["speculation_method"] for s in mine}
    told = {description_of(s).get("speculation_method") for s in mine}
    return {method for method in declared | told if isinstance(method, str)}


def _partners(
    points: pd.DataFrame, sessions: pd.DataFrame, variant: str, baseline: str
) -> list[str]:
    """The arms that differ from the variant in acceptance alone, by what was recorded of both."""
    found = []
    for other in sorted(set(points["variant"]) - {variant, baseline}):
        parity = compare_arms(points, sessions, variant, other)
        if parity.differs_in_acceptance_alone and not drafting.varies(
            points[points["variant"] == other], ()
        ):
            found.append(other)
    return found


def _farthest(tokens: Mapping[str, Mapping[float, float]], variant: str) -> str | None:
    """The partner whose acceptance is farthest from the variant's; None: none is far enough."""
    contrast = {}
    for other in tokens.keys() - {variant}:
        common = tokens[variant].keys() & tokens[other].keys()
        contrast[other] = min(
            (abs(np.log(tokens[other][c] / tokens[variant][c])) for c in common), default=0.0
        )
    best = max(sorted(contrast), key=contrast.get, default=None)
    return best if best is not None and contrast[best] >= LEAST_CONTRAST else None


def _mean(values: pd.Series) -> float | None:
    mean = float(values.astype(float).mean())
    return mean if mean == mean else None


# ------------------------------------------------------------------ predictions


def _predicted(
    line: CostLine, acceptance_length: float, output_tokens: float | None, settings: Settings
) -> Prediction:
    if output_tokens is None:
        return Prediction(acceptance_length, None, reason="output_lengths_unknown")
    tokens = tokens_per_step_of(acceptance_length, output_tokens)
    ratio = predict(line, tokens)
    if ratio is None:
        return Prediction(acceptance_length, tokens, reason="acceptance_too_far")
    if not line.is_bound:
        return Prediction(acceptance_length, tokens, None, *judged(ratio, ratio, ratio, settings))
    measured = line.tokens_per_step
    if measured.min() / AS_MEASURED <= tokens <= measured.max() * AS_MEASURED:
        return Prediction(acceptance_length, tokens, reason="acceptance_as_measured")
    return Prediction(acceptance_length, tokens, *judged_band(line, tokens, settings))


def judged_band(line: CostLine, tokens_per_step: float, settings: Settings) -> tuple[Any, ...]:
    """From one arm: `bound`, and as of `judged`, what holds whatever prefill's share is."""
    without, most = (
        predict(line, tokens_per_step),
        predict_with_most_prefill(line, tokens_per_step),
    )
    if tokens_per_step < line.tokens_per_step.min():
        return "at_least", *judged(without, without, most, settings)
    return "at_most", *judged(without, most, without, settings)


def judged(
    ratio: LogRatio, lowest: LogRatio, highest: LogRatio, settings: Settings
) -> tuple[tuple[PredictedLevel, ...], tuple[Crossing, ...], dict[str, Any] | None]:
    """A predicted ratio, judged by the rules of a measured one.

    Args:
        ratio: what is shown.
        lowest: the least that the true one may be; the same where the line is known.
        highest: the most.
        settings: of the verdict.

    Returns: the levels, the crossings, and where C* is said not to be if there are none.
    """
    low, high = (Bounds.of(end, settings.alpha) for end in (lowest, highest))
    bounds = replace(low, hi=high.hi, pointwise_hi=high.pointwise_hi)
    repeated = bool(np.isfinite(ratio.se).all())
    levels = tuple(
        PredictedLevel(
            concurrency=level,
            ratio=float(np.exp(ratio.log_ratio[i])),
            lo=float(np.exp(bounds.lo[i])) if repeated else None,
            hi=float(np.exp(bounds.hi[i])) if repeated else None,
            label=bounds.labels[i] if repeated else None,
        )
        for i, level in enumerate(bounds.levels.tolist())
    )
    of_ends = [
        crossings_of(end, bounds, laws=True, settings=settings)[0] for end in (lowest, highest)
    ]
    crossings = tuple(_spanning(*pair) for pair in zip(*of_ends, strict=True))
    return levels, crossings, censored(bounds)


def _spanning(one: Crossing, other: Crossing) -> Crossing:
    """A crossing that lies anywhere between two of the same bracket."""
    return replace(
        one,
        c_star=math.sqrt(one.c_star * other.c_star),
        ci=(min(one.ci[0], other.ci[0]), max(one.ci[1], other.ci[1])),
        coarse=one.coarse or other.coarse,
    )
