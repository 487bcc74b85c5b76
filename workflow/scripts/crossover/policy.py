"""Which variant to run at which concurrency, as measured, and where to switch (METHOD §7)."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from crossover.verdict import METRICS, Verdict, settings_of, usable_points

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from crossover.campaign import Analysis
    from crossover.stats.curve import Crossing

HYSTERESIS = 1.05
"""Least distance of a switching threshold from C*, as a factor."""

ADVICE = (
    "Switching has a cost of its own that was not measured here: before relying on it, measure "
    "the switching configuration as one more variant, and let it stay at least ten times its "
    "switching time on either side."
)


def policy(points: pd.DataFrame, verdicts: Iterable[Verdict], analysis: Analysis) -> dict[str, Any]:
    """The policy of a campaign, for policy.json.

    Args:
        points: rows of `records.POINTS`, all variants and workloads.
        verdicts: those of the same points; `runs` compares the variants that were judged against
            the same baseline as a workload's first verdict.
        analysis: metric and margin.

    Returns:
        {metric, margin, advice, workloads: [{workload, runs, switching}]}. `runs` are runs of
        measured levels with the same best variant, {from_concurrency, to_concurrency, variant,
        supported}; the baseline is kept within the margin, and `supported` says whether the
        verdicts resolve the choice at every level of the run (else it is the best guess).
        `switching` has for every crossing {variant, direction, on_at_most, off_at_least} or,
        where the variant pays at high load, {…, on_at_least, off_at_most}, and `coarse`.
    """
    by_workload = defaultdict(list)
    for verdict in verdicts:
        by_workload[verdict.workload].append(verdict)
    return {
        "metric": analysis.metric,
        "margin": analysis.margin,
        "advice": ADVICE,
        "workloads": [
            {
                "workload": workload,
                "runs": _runs(points[points["workload"] == workload], of_workload, analysis),
                "switching": [
                    _thresholds(verdict.variant, crossing)
                    for verdict in of_workload
                    if verdict.verdict in ("crossover", "multiple_crossovers")
                    for crossing in verdict.crossings
                ],
            }
            for workload, of_workload in by_workload.items()
        ],
    }


def _runs(
    points: pd.DataFrame, verdicts: Sequence[Verdict], analysis: Analysis
) -> list[dict[str, Any]]:
    baseline = verdicts[0].baseline
    verdicts = [verdict for verdict in verdicts if verdict.baseline == baseline]
    variants = [baseline, *(verdict.variant for verdict in verdicts)]
    means = _means(points, variants, analysis)
    margin = math.log1p(analysis.margin)
    chosen = []
    for level in sorted({level for level, _ in means}):
        of_level = {v: means[level, v] for v in variants if (level, v) in means}
        best = max(of_level, key=of_level.get)
        if baseline in of_level and of_level[best] - of_level[baseline] <= margin:
            best = baseline
        chosen.append((level, best, _is_supported(level, best, verdicts)))
    runs = []
    for variant, group in groupby(chosen, key=lambda choice: choice[1]):
        levels = list(group)
        runs.append(
            {
                "from_concurrency": levels[0][0],
                "to_concurrency": levels[-1][0],
                "variant": variant,
                "supported": all(supported for *_, supported in levels),
            }
        )
    return runs


def _means(
    points: pd.DataFrame, variants: Sequence[str], analysis: Analysis
) -> Mapping[tuple[int, str], float]:
    """Mean of ln of the metric by (level, variant), oriented: greater is better."""
    sign = 1 if METRICS[analysis.metric].higher_is_better else -1
    usable, _ = usable_points(points, analysis, settings_of(analysis), variants)
    values = defaultdict(list)
    for point in usable:
        values[point["concurrency"], point["variant"]].append(sign * math.log(point["value"]))
    return {key: float(np.mean(logs)) for key, logs in values.items()}


def _is_supported(level: int, best: str, verdicts: Iterable[Verdict]) -> bool:
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


def _thresholds(variant: str, crossing: Crossing) -> dict[str, Any]:
    """Switching with hysteresis: outside C*'s interval, and 5 % away from C* at least."""
    low = math.floor(min(crossing.ci[0], crossing.c_star / HYSTERESIS) + 1e-9)
    high = math.ceil(max(crossing.ci[1], crossing.c_star * HYSTERESIS) - 1e-9)
    keys = ("on_at_most", "off_at_least")
    if crossing.direction == "up":
        keys = ("off_at_most", "on_at_least")
    return {
        "variant": variant,
        "direction": crossing.direction,
        **dict(zip(keys, (low, high), strict=True)),
        "coarse": crossing.coarse,
    }
