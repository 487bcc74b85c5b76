"""What switching is worth for a distribution of load, and what a wrong threshold costs."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from crossover.stats.curve import Crossing
    from crossover.stats.model import Observation
    from crossover.verdict_points import Arms


def expected_gain(
    arms: Arms, names: Sequence[str], shares: Mapping[float, float], margin: float
) -> dict[str, Any] | None:
    """Switching to the best variant at each level against the best single variant.

    Σπ·T of the choice over Σπ·T of the best static variant, minus 1; π the shares of time, T the
    metric. Whoever chooses and scores on the same data finds a gain in noise, so each trial in
    turn is scored with what the other trials choose: `gain` is the mean of those and `se` its
    standard error; `plug_in` is the flattering value from all trials at once.

    Args:
        arms: of all variants, of a metric of which more is better.
        names: the baseline first, which is kept within `margin`; then the variants.
        shares: level → share of time; scaled to 1. Between levels T is interpolated in ln C.
        margin: relative difference that does not matter.

    Returns:
        {best_static, plug_in, gain, se, trials}, gains relative; gain and se None below two
        trials. None if a share lies outside the levels that a variant was measured at.
    """
    at, weight = _load(shares)
    tables = [_by_level(arms.observations[name]) for name in names]
    whole = np.array([_curve(table, at) for table in tables])
    if np.isnan(whole).any():
        return None
    scored = []
    trials = sorted(set.intersection(*(_trials(table) for table in tables)), key=str)
    for trial in trials:
        others = np.array([_curve(table, at, set(trials) - {trial}) for table in tables])
        held_out = np.array([_curve(table, at, {trial}) for table in tables])
        if np.isnan(others).any() or np.isnan(held_out).any():
            continue
        switching = weight @ _chosen(held_out, _choice(others, margin))
        static = held_out[(others @ weight).argmax()] @ weight
        scored.append(math.log(switching / static))
    static = whole @ weight
    enough = len(scored) > 1
    return {
        "best_static": names[int(static.argmax())],
        "plug_in": float(weight @ _chosen(whole, _choice(whole, margin)) / static.max() - 1),
        "gain": math.expm1(np.mean(scored)) if enough else None,
        "se": float(np.std(scored, ddof=1) / math.sqrt(len(scored))) if enough else None,
        "trials": len(scored),
    }


def worst_regret(
    arms: Arms, baseline: str, variant: str, crossing: Crossing, shares: Mapping[float, float]
) -> float | None:
    """Greatest share of the metric lost by any threshold within C*'s interval.

    1 - Σπ·T_c/Σπ·max(T_b, T_v), T_c the variant's on its side of threshold c and the baseline's
    on the other, by the measured means. None if a share lies outside the measured levels.
    """
    at, weight = _load(shares)
    curves = np.array([_curve(_by_level(arms.observations[n]), at) for n in (baseline, variant)])
    if np.isnan(curves).any():
        return None
    best = weight @ curves.max(axis=0)
    low, high = crossing.ci
    thresholds = [low, *at[(at > low) & (at < high)], high]
    below = np.array([at <= c for c in thresholds])
    ours = below if crossing.direction == "down" else ~below
    return float(max(1 - np.where(ours, curves[1], curves[0]) @ weight / best))


def _load(shares: Mapping[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Levels, ascending, and their shares of the time."""
    at = np.array(sorted(shares), dtype=float)
    weight = np.array([shares[level] for level in sorted(shares)], dtype=float)
    return at, weight / weight.sum()


_Table = dict[float, dict["Hashable", list[float]]]
"""level → trial → ln of the metric"""


def _by_level(observations: Iterable[Observation]) -> _Table:
    table = defaultdict(lambda: defaultdict(list))
    for o in observations:
        table[o.level][o.trial].append(o.log_value)
    return table


def _trials(table: _Table) -> set[Hashable]:
    return {trial for of_level in table.values() for trial in of_level}


def _curve(table: _Table, at: np.ndarray, trials: Collection[Hashable] | None = None) -> np.ndarray:
    """The metric at `at`, from some or all trials; NaN outside the levels that they have."""
    means = {}
    for level, by_trial in sorted(table.items()):
        kept = [
            v for t, values in by_trial.items() if trials is None or t in trials for v in values
        ]
        if kept:
            means[level] = np.mean(kept)
    if not means:
        return np.full(len(at), np.nan)
    x = np.log(np.array(list(means), dtype=float))
    return np.exp(np.interp(np.log(at), x, list(means.values()), left=np.nan, right=np.nan))


def _choice(curves: np.ndarray, margin: float) -> np.ndarray:
    """Index of the variant to run at each level."""
    return np.where(curves.max(axis=0) > curves[0] * (1 + margin), curves.argmax(axis=0), 0)


def _chosen(curves: np.ndarray, choice: np.ndarray) -> np.ndarray:
    return curves[choice, np.arange(curves.shape[1])]
