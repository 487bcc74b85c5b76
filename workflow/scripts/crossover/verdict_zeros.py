"""Levels at which an arm delivered nothing: a loss or a gain without a logarithm."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from crossover.verdict_points import Arms


@dataclass(frozen=True)
class ZeroLevel:
    """A level that both arms have and at which the metric of one of them was 0 at least once."""

    level: float
    log_ratio: float
    """-inf: the variant always 0 and the baseline never; inf: the reverse; NaN: neither"""
    repeated: bool
    """both arms have two trials or more, so that it may be labelled"""
    baseline_mean: float
    variant_mean: float
    baseline_trials: int
    variant_trials: int

    @property
    def bounds(self) -> tuple[float, float]:
        """Of the log ratio: the same infinity twice, or both where nothing is resolved."""
        if math.isnan(self.log_ratio) or not self.repeated:
            return -math.inf, math.inf
        return self.log_ratio, self.log_ratio


def zero_levels(arms: Arms, variant: str, baseline: str) -> list[ZeroLevel]:
    """The levels to be judged outside the log model, ascending."""
    values = defaultdict(lambda: defaultdict(dict))
    for point in arms.usable:
        values[point["level"]][point["variant"]].setdefault(point["trial"], []).append(
            point["value"]
        )
    common = arms.levels(variant) & arms.levels(baseline)
    touched = common & {*arms.zeros[variant], *arms.zeros[baseline]}
    return [
        _zero_level(level, *(_by_trial(values[level][arm]) for arm in (variant, baseline)))
        for level in sorted(touched)
    ]


def _by_trial(values: dict[object, list[float]]) -> np.ndarray:
    return np.array([np.mean(of_trial) for of_trial in values.values()])


def _zero_level(level: float, ours: np.ndarray, theirs: np.ndarray) -> ZeroLevel:
    log_ratio = math.nan
    if not ours.any() and theirs.all():
        log_ratio = -math.inf
    elif ours.all() and not theirs.any():
        log_ratio = math.inf
    return ZeroLevel(
        level=level,
        log_ratio=log_ratio,
        repeated=min(len(ours), len(theirs)) >= 2,
        baseline_mean=float(theirs.mean()),
        variant_mean=float(ours.mean()),
        baseline_trials=len(theirs),
        variant_trials=len(ours),
    )
