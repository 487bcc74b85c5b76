"""The best of several variants against the baseline: the upper envelope of their ratios."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crossover.stats.curve import find_crossing
from crossover.stats.model import fit
from crossover.verdict_rules import Bounds, sign_changes, verdict_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crossover.stats.model import LogRatio, Settings
    from crossover.verdict_points import Arms


def envelope(
    arms: Arms, names: Sequence[str], settings: Settings, *, laws: bool
) -> dict[str, Any] | None:
    """Whether, and up to where, any of the variants beats the baseline.

    The envelope is r = max over the m variants. A maximum picks the luckiest of them, so its
    lower bounds hold at alpha/m; upper bounds at alpha; the rules of a verdict follow. The
    interval of C* has its end on the baseline's side from the variants' own intervals and the
    other, where some variant must pay, from intervals at 1 - (1 - confidence)/m.

    Args:
        arms: of all variants.
        names: the baseline first, then the variants.
        settings: of the verdicts.
        laws: the metric is an output throughput.

    Returns:
        {verdict, levels: [{concurrency or request_rate, label}], crossings: [{direction, bracket, c_star, ci}]};
        None where no variant was repeated, or a metric is 0 somewhere.
    """
    if any(arms.zeros.values()):
        return None
    baseline, *variants = names
    fitted = {
        name: fit(arms.observations[baseline], arms.observations[name], settings)
        for name in variants
    }
    ratios = {
        name: ratio for name, ratio in fitted.items() if ratio is not None and not ratio.reasons
    }
    if not ratios:
        return None
    bounds = _upper(
        [Bounds.of(ratio, settings.alpha, arms=len(variants)) for ratio in ratios.values()],
        complete=len(ratios) == len(variants),
    )
    return {
        "verdict": verdict_class(bounds, math.log1p(settings.margin)),
        "levels": [
            {arms.axis.name: level, "label": label}
            for level, label in zip(bounds.levels.tolist(), bounds.labels, strict=True)
        ],
        "crossings": [
            _crossing(
                ratios,
                *(bounds.levels[[first, last]].tolist()),
                up=bounds.labels[last] == "+",
                laws=laws and arms.axis.closed_loop,
                settings=settings,
                arms=len(variants),
            )
            for first, last in sign_changes(bounds.labels)
        ],
    }


def _upper(of_variants: Sequence[Bounds], *, complete: bool) -> Bounds:
    """The greatest of each bound at each level that any variant has.

    Where a variant has no bounds, or one was left out (not `complete`), it may be as good as can be.
    """
    levels = np.unique(np.concatenate([bounds.levels for bounds in of_variants]))
    parts = {}
    for name in vars(of_variants[0]):
        unknown = np.inf if name in ("hi", "pointwise_hi") else -np.inf
        table = np.full((len(of_variants) + (not complete), len(levels)), unknown)
        for row, bounds in zip(table, of_variants, strict=complete):
            row[np.searchsorted(levels, bounds.levels)] = vars(bounds)[name]
        parts[name] = table.max(axis=0)
    return Bounds(**{**parts, "levels": levels})


def _crossing(
    ratios: Mapping[str, LogRatio],
    low: float,
    high: float,
    *,
    up: bool,
    laws: bool,
    settings: Settings,
    arms: int,
) -> dict[str, Any]:
    """A crossing of the envelope: the last variant's to fall below 1, or the first's to rise."""
    strict = replace(settings, confidence=1 - (1 - settings.confidence) / arms)
    found = []
    for ratio in ratios.values():
        levels = ratio.levels.tolist()
        if low in levels and high in levels:
            ends = (levels.index(low), levels.index(high))
            own, wide = (
                find_crossing(ratio, *ends, up=up, laws=laws, settings=s)
                for s in (settings, strict)
            )
            ci = (own.ci[0], wide.ci[1]) if up else (wide.ci[0], own.ci[1])
            found.append((own.c_star, *ci))
    outer = [(min if up else max)(values) for values in zip(*found, strict=True)]
    return {
        "direction": "up" if up else "down",
        "bracket": [low, high],
        "c_star": outer[0] if outer else None,
        "ci": outer[1:] or None,
    }
