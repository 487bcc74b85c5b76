"""Which variant to run at which concurrency, as measured, and where to switch."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from crossover.axis import whole
from crossover.policy_envelope import envelope
from crossover.policy_gain import expected_gain, worst_regret
from crossover.policy_schedule import in_own_terms
from crossover.verdict import settings_of
from crossover.verdict_metrics import metric_of, with_derived
from crossover.verdict_points import Arms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from crossover.axis import Axis
    from crossover.campaign import Analysis, Variant
    from crossover.stats.curve import Crossing
    from crossover.verdict import Verdict

HYSTERESIS = 1.05
"""Least distance of a switching threshold from C*, as a factor."""

ADVICE = (
    "Switching has a cost of its own that was not measured here: before relying on it, measure "
    "the switching configuration as one more variant, and let it stay at least ten times its "
    "switching time on either side."
)


def policy(
    points: pd.DataFrame,
    verdicts: Iterable[Verdict],
    analysis: Analysis,
    variants: Mapping[str, Variant] | None = None,
) -> dict[str, Any]:
    """The policy of a campaign, for policy.json; docs/verdict.md explains its fields.

    Args:
        points: rows of `records.POINTS`, all variants and workloads.
        verdicts: those of the same points; of each workload those count that are on
            `analysis.metric` and against the same baseline as its first one. A second arm of the
            baseline's own configuration is no choice.
        analysis: metric, margin and load shares.
        variants: of the campaign, for the policy in their engines' own terms.
    """
    by_workload = defaultdict(list)
    for verdict in verdicts:
        if verdict.metric == analysis.metric and not verdict.same_configuration:
            by_workload[verdict.workload].append(verdict)
    points = with_derived(points)
    return {
        "metric": analysis.metric,
        "margin": analysis.margin,
        "advice": ADVICE,
        "workloads": [
            _of_workload(
                workload,
                points[points["workload"] == workload],
                [v for v in of_workload if v.baseline == of_workload[0].baseline],
                analysis,
                variants or {},
            )
            for workload, of_workload in by_workload.items()
        ],
    }


def _of_workload(
    workload: str | None,
    points: pd.DataFrame,
    verdicts: Sequence[Verdict],
    analysis: Analysis,
    variants: Mapping[str, Variant],
) -> dict[str, Any]:
    baseline = verdicts[0].baseline
    verdicts = [verdict for verdict in verdicts if verdict.verdict != "not_comparable"]
    names = [baseline, *(verdict.variant for verdict in verdicts)]
    metric, settings = metric_of(analysis.metric), settings_of(analysis)
    arms = Arms.of(points, metric, settings, names, analysis.block_span_h)
    best = _best_by_level(arms, names, math.log1p(analysis.margin))
    rates = metric.higher_is_better and not any(arms.zeros.values())
    shares = analysis.load_shares if rates and verdicts else None
    return {
        "workload": workload,
        "axis": arms.axis.name,
        "runs": _runs(best, verdicts, arms.axis),
        "envelope": envelope(arms, names, settings, laws=metric.operational_laws),
        "switching": [
            {
                **_thresholds(verdict.variant, crossing, arms.axis),
                "regret_max": shares
                and worst_regret(arms, baseline, verdict.variant, crossing, shares),
            }
            for verdict in verdicts
            if verdict.verdict in ("crossover", "multiple_crossovers")
            for crossing in verdict.crossings
        ],
        "expected_gain": shares and expected_gain(arms, names, shares, analysis.margin),
        # an engine switches by the size of its batch
        "own_terms": in_own_terms(best, verdicts, variants) if arms.axis.closed_loop else None,
    }


# ------------------------------------------------------------------ the best at each level


def _best_by_level(arms: Arms, names: Sequence[str], margin: float) -> dict[float, str]:
    """The variant of the highest mean at each level; the baseline, first, is kept within `margin`.

    Levels that the baseline or all others lack are left out: nothing was compared there.
    """
    means = _means(arms)
    chosen = {}
    for level in sorted({level for level, _ in means}):
        of_level = {name: means[level, name] for name in names if (level, name) in means}
        if names[0] not in of_level or len(of_level) == 1:
            continue
        best = max(of_level, key=of_level.get)
        if of_level[best] <= of_level[names[0]] + margin:
            best = names[0]
        chosen[level] = best
    return chosen


def _means(arms: Arms) -> dict[tuple[float, str], float]:
    """Mean of ln of the metric by (level, variant), oriented; -inf where it was 0 in a trial."""
    values = defaultdict(list)
    for variant, observations in arms.observations.items():
        for o in observations:
            values[o.level, variant].append(o.log_value)
    means = {key: float(np.mean(logs)) for key, logs in values.items()}
    return means | {
        (level, variant): -math.inf for variant, levels in arms.zeros.items() for level in levels
    }


def _runs(
    best: Mapping[float, str], verdicts: Iterable[Verdict], axis: Axis
) -> list[dict[str, Any]]:
    """Neighbouring levels with the same best variant and the same support."""
    supported = {level: _is_supported(level, name, verdicts) for level, name in best.items()}
    runs = []
    for (variant, support), group in groupby(
        best, key=lambda level: (best[level], supported[level])
    ):
        levels = list(group)
        runs.append(
            {
                f"from_{axis.name}": levels[0],
                f"to_{axis.name}": levels[-1],
                "variant": variant,
                "supported": support,
            }
        )
    return runs


def _is_supported(level: float, best: str, verdicts: Iterable[Verdict]) -> bool:
    """Whether the verdicts resolve the choice between `best` and the baseline at a level.

    Every variant must be shown to be no better than a chosen baseline; a chosen variant must be
    shown to be better than it. The order among variants is that of their means alone.
    """
    at_level = {
        verdict.variant: (entry.label, verdict.verdict)
        for verdict in verdicts
        for entry in verdict.levels
        if entry.concurrency == level
    }
    if best in at_level:
        return at_level[best][0] == "+"
    return bool(at_level) and all(
        label == "-" or kind == "equivalent" for label, kind in at_level.values()
    )


def _thresholds(variant: str, crossing: Crossing, axis: Axis) -> dict[str, Any]:
    """Switching with hysteresis: outside C*'s interval, and 5 % away from C* at least."""
    low = min(crossing.ci[0], crossing.c_star / HYSTERESIS)
    high = max(crossing.ci[1], crossing.c_star * HYSTERESIS)
    if axis.closed_loop:
        low, high = whole(low), math.ceil(high - 1e-9)
    keys = ("on_at_most", "off_at_least")
    if crossing.direction == "up":
        keys = ("off_at_most", "on_at_least")
    return {
        "variant": variant,
        "direction": crossing.direction,
        **dict(zip(keys, (low, high), strict=True)),
        "coarse": crossing.coarse,
    }
