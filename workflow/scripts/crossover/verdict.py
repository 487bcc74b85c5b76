"""The verdict on one variant against one baseline under one workload.

`find_verdict` takes points (`verdict_points`), fits the model of `stats.model` and applies the
rules (`verdict_rules`); `sentence` says the result in plain words. docs/verdict.md has the rules and
how the fields of a verdict are read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from crossover import blocks
from crossover import verdict_caveats as caveats
from crossover import verdict_rules as rules
from crossover.errors import CampaignError
from crossover.stats.drift import find_drift
from crossover.stats.model import LogRatio, Settings, fit
from crossover.verdict_metrics import metric_of, with_derived
from crossover.verdict_points import Arms
from crossover.verdict_record import Level, Verdict
from crossover.verdict_rules import Bounds
from crossover.verdict_sentence import sentence
from crossover.verdict_zeros import ZeroLevel, zero_levels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from crossover.axis import Axis
    from crossover.campaign import Analysis
    from crossover.verdict_metrics import Metric

__all__ = ["Level", "Verdict", "find_verdict", "sentence", "settings_of"]


def settings_of(analysis: Analysis) -> Settings:
    """The settings that follow from a campaign's `analysis` section."""
    return Settings(
        margin=analysis.margin,
        alpha=analysis.alpha,
        confidence=analysis.confidence,
    )


def find_verdict(
    points: pd.DataFrame,
    analysis: Analysis,
    *,
    variant: str | None = None,
    baseline: str | None = None,
    workload: str | None = None,
    metric: str | None = None,
    settings: Settings | None = None,
) -> Verdict:
    """Judge one variant against one baseline.

    Args:
        points: rows of `records.POINTS` of one workload; other variants' rows are ignored. Used
            are variant, trial, concurrency (or request_rate, in an open loop), the metric's
            column, and where present session_id, cv_within, error_share, valid, invalid_reasons,
            workload, output_tokens_mean, server_digest and the facts of the session (host,
            boot_id, engine_version, session_started_at). Without those each trial counts as one
            launch an arm and as one block. Null is missing.
        analysis: metric, margin, confidence and block span of the campaign.
        variant: the arm whose advantage is asked for. May be left out where it is clear:
            `analysis.compare` has one pair, or there are two variants and one is the baseline.
        baseline: the arm it is compared with. May be left out as well if `variant` is given and
            there are two variants, or if one of two has a name that begins with "baseline".
        workload: name of the workload; needed only where there may be no points to tell it.
        metric: one of `verdict_metrics.METRICS`, instead of `analysis.metric`.
        settings: replaces those that follow from `analysis`, e.g. the smaller alpha of data that
            are judged again after every trial.

    Raises:
        CampaignError: the metric is none, or it is not clear which variants are compared.
    """
    name = metric or analysis.metric
    measure = metric_of(name)
    variant, baseline = _pair(points, analysis, variant, baseline)
    settings = settings or settings_of(analysis)
    arms = Arms.of(
        with_derived(points), measure, settings, [variant, baseline], analysis.block_span_h
    )
    levels = {"baseline": arms.levels(baseline), "variant": arms.levels(variant)}
    known = {
        "variant": variant,
        "baseline": baseline,
        "workload": workload or _workload(points),
        "metric": name,
        "axis": arms.axis.name,
        "confidence": settings.confidence,
        "margin": settings.margin,
        "bad_rows": tuple(arms.bad_rows),
        "dropped_levels": tuple(sorted(levels["baseline"] ^ levels["variant"])),
        "feasible_max": {arm: max(of_arm, default=None) for arm, of_arm in levels.items()},
        "same_configuration": _same_configuration(points, variant, baseline),
    }
    zeros = zero_levels(arms, variant, baseline)
    ratio = _fitted(arms, zeros, variant, baseline, settings)
    if ratio is None and not zeros:
        lacking = [f"{arm}_without_valid_points" for arm, of_arm in levels.items() if not of_arm]
        return Verdict(
            verdict="not_comparable", reasons=tuple(lacking or ["no_common_level"]), **known
        )
    laws = measure.operational_laws and arms.axis.closed_loop
    drift = find_drift([arms.observations[arm] for arm in (baseline, variant)], settings.confidence)
    paired = ratio is not None and ratio.paired
    notes = blocks.caveats(arms.blocks, variant, baseline, analysis.block_span_h, paired=paired)
    if ratio is not None:
        notes += caveats.of_ratio(ratio, known, settings, laws=laws)
    notes += caveats.of_extent(known, arms.axis)
    notes += caveats.of_output_lengths(arms.usable, known, arms.axis)
    notes += caveats.of_drift(drift, settings.margin)
    known |= {
        "paired": paired,
        "n_trials": _trials(zeros) if ratio is None else ratio.n_trials,
        "drift": drift,
    }
    if reasons := _not_judged(ratio, zeros):
        return Verdict(
            verdict="inconclusive",
            reasons=reasons,
            levels=_levels(ratio, zeros, None, measure, arms.axis),
            indicative=rules.indicative(_log_ratios(ratio, zeros), settings),
            caveats=tuple(notes),
            **known,
        )
    bounds = _bounds(ratio, zeros, settings.alpha)
    kind = rules.verdict_class(bounds, math.log1p(settings.margin))
    changes = rules.sign_changes(bounds.labels)
    crossings, violated = rules.crossings_of(ratio, bounds, laws=laws, settings=settings)
    widest = max(-bounds.pointwise_lo.min(), bounds.pointwise_hi.max())
    if ratio is not None and len(ratio.levels) == 1:
        notes.append(caveats.one_level_with_values(ratio, arms.axis))
    notes += caveats.of_crossings(bounds, changes, crossings, arms.axis)
    return Verdict(
        verdict=kind,
        reasons=tuple(_reasons(kind, bounds.labels, changes, violated)),
        caveats=tuple(notes),
        levels=_levels(ratio, zeros, bounds, measure, arms.axis),
        crossings=tuple(crossings),
        censored=rules.censored(bounds),
        tau=None if ratio is None else ratio.tau,
        equivalence_margin_supported=math.expm1(widest),
        needed=_needed(arms, zeros, ratio, variant, baseline, settings),
        **known,
    )


# ------------------------------------------------------------------ which arms


def _pair(
    points: pd.DataFrame, analysis: Analysis, variant: str | None, baseline: str | None
) -> tuple[str, str]:
    """(variant, baseline), where they are clear."""
    if variant is not None and baseline is not None:
        return variant, baseline
    if variant is baseline is None and len(analysis.compare) == 1:
        return analysis.compare[0]
    names = sorted(points["variant"].dropna().unique())
    if len(names) == 2:
        if variant is None and baseline is None:
            called = [name for name in names if name.lower().startswith("baseline")]
            baseline = called[0] if len(called) == 1 else None
        given = baseline if variant is None else variant
        if given in names:
            other = names[1 - names.index(given)]
            return (other, given) if variant is None else (given, other)
    raise CampaignError(
        f"the points have the variants {', '.join(names) or '(none)'}, and it is not clear which "
        "is compared with which; give variant=… and baseline=…, or one pair in analysis.compare"
    )


def _workload(points: pd.DataFrame) -> str | None:
    names = set(points["workload"].dropna()) if "workload" in points else set()
    return names.pop() if len(names) == 1 else None


def _same_configuration(points: pd.DataFrame, variant: str, baseline: str) -> bool:
    """Whether both arms' servers have one and the same digest, as points record it."""
    if "server_digest" not in points:
        return False
    digests = points["server_digest"]
    of_arms = [set(digests[points["variant"] == arm].dropna()) for arm in (variant, baseline)]
    return len(of_arms[0]) == 1 and of_arms[0] == of_arms[1]


# ------------------------------------------------------------------ the levels


def _fitted(
    arms: Arms, zeros: Sequence[ZeroLevel], variant: str, baseline: str, settings: Settings
) -> LogRatio | None:
    """The model fitted to the levels where both arms always have a logarithm."""
    outside = {zero.level for zero in zeros}
    of_baseline, of_variant = (
        [o for o in arms.observations[arm] if o.level not in outside] for arm in (baseline, variant)
    )
    return fit(of_baseline, of_variant, settings)


def _needed(
    arms: Arms,
    zeros: Sequence[ZeroLevel],
    ratio: LogRatio | None,
    variant: str,
    baseline: str,
    settings: Settings,
) -> tuple[dict[str, float | None], ...]:
    """What would resolve the unresolved levels, and where longer windows would sooner."""
    if ratio is None:
        return ()
    steady = ratio
    if np.isfinite(ratio.window_cv).any():
        steady = _fitted(arms.without_window_noise(), zeros, variant, baseline, settings)
    return tuple(rules.needed(ratio, steady, settings.alpha))


def _trials(zeros: Sequence[ZeroLevel]) -> int:
    return max(min(zero.baseline_trials, zero.variant_trials) for zero in zeros)


def _not_judged(ratio: LogRatio | None, zeros: Sequence[ZeroLevel]) -> tuple[str, ...]:
    """Why no level can be labelled; empty if one can.

    A level with values that stands alone among zeros says nothing of its noise, and they decide.
    """
    fitted = 0 if ratio is None else len(ratio.levels)
    reasons = ("single_repeat",) if ratio is None else ratio.reasons
    if fitted < 2 and any(zero.repeated for zero in zeros):
        reasons = ()
    return reasons + ("fewer_than_2_common_levels",) * (fitted + len(zeros) < 2)


def _bounds(ratio: LogRatio | None, zeros: Sequence[ZeroLevel], alpha: float) -> Bounds:
    if ratio is None:
        return Bounds.of_zeros(zeros)
    bounds = Bounds.of(ratio, alpha)
    return bounds | Bounds.of_zeros(zeros) if zeros else bounds


def _log_ratios(ratio: LogRatio | None, zeros: Sequence[ZeroLevel]) -> list[float]:
    by_level = {zero.level: zero.log_ratio for zero in zeros}
    if ratio is not None:
        by_level |= dict(zip(ratio.levels.tolist(), ratio.log_ratio.tolist(), strict=True))
    return [by_level[level] for level in sorted(by_level)]


def _levels(
    ratio: LogRatio | None,
    zeros: Sequence[ZeroLevel],
    bounds: Bounds | None,
    metric: Metric,
    axis: Axis,
) -> tuple[Level, ...]:
    sign = 1 if metric.higher_is_better else -1
    measured = {
        zero.level: {
            "baseline_mean": zero.baseline_mean,
            "variant_mean": zero.variant_mean,
            "baseline_trials": zero.baseline_trials,
            "variant_trials": zero.variant_trials,
        }
        for zero in zeros
    }
    for i, level in enumerate([] if ratio is None else ratio.levels.tolist()):
        measured[level] = {
            "baseline_mean": math.exp(sign * ratio.log_baseline[i]),
            "variant_mean": math.exp(sign * ratio.log_variant[i]),
            "baseline_trials": int(ratio.baseline_trials[i]),
            "variant_trials": int(ratio.variant_trials[i]),
        }
    names = ("lo", "hi", "pointwise_lo", "pointwise_hi")

    def judged(i: int) -> dict[str, Any]:
        if bounds is None:
            return dict.fromkeys((*names, "label"))
        at = {name: math.exp(getattr(bounds, name)[i]) for name in names}
        return {**at, "label": bounds.labels[i]}

    return tuple(
        Level(
            concurrency=axis.level(level),
            ratio=math.exp(log_ratio),
            **judged(i),
            **measured[level],
        )
        for i, (level, log_ratio) in enumerate(
            zip(sorted(measured), _log_ratios(ratio, zeros), strict=True)
        )
    )


def _reasons(
    kind: str, labels: Sequence[str], changes: Sequence[tuple[int, int]], violated: int
) -> list[str]:
    reasons = []
    if kind == "inconclusive":
        some = set(labels) != {"?"}
        reasons.append("levels_unresolved" if some else "no_significant_level")
    reasons += ["operational_law_violated"] * violated
    if changes and kind not in ("crossover", "multiple_crossovers"):
        reasons.append("crossing_within_margin")
    return reasons
