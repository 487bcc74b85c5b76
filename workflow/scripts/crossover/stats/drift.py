"""Whether a metric changed with time within the arms of a comparison."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from crossover.stats.model import Observation


@dataclass(frozen=True)
class Drift:
    """Slope of ln of the metric, oriented, against the sessions' start time, common to the arms."""

    per_h: float
    """in ln an hour, about the relative change"""
    per_h_lo: float
    per_h_hi: float
    """interval of the slope"""
    span_h: float
    """first start of a server to last"""
    over_span: float
    """relative change from the first start to the last"""
    launches: int

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.per_h_lo * self.per_h_hi > 0


def find_drift(arms: Iterable[Sequence[Observation]], confidence: float) -> Drift | None:
    """Least squares of the launches' mean residuals on their start times.

    A residual is an observation's difference from its arm's mean at its level; a launch counts
    once, as the mean of its residuals. Each arm has its own intercept, so that the arms' order
    makes no drift; the slope is common. Degrees of freedom: launches - arms - 1.

    Returns:
        None if start times are not known, are all the same, or leave no degree of freedom.
    """
    residuals, hours, n_arms = [], [], 0
    for arm in arms:
        launches = _launches([o for o in arm if o.started_at is not None])
        if len(launches) < 2:
            continue
        n_arms += 1
        times, effects = np.array(launches).T
        hours.append(times / 3600)
        residuals.append(effects - effects.mean())
    dof = sum(map(len, residuals)) - n_arms - 1
    if not n_arms or dof < 1:
        return None
    centred = np.concatenate([h - h.mean() for h in hours])
    residual = np.concatenate(residuals)
    spread = float(centred @ centred)
    if spread < 1e-12:
        return None
    slope = float(centred @ residual) / spread
    variance = float(((residual - slope * centred) ** 2).sum()) / dof
    half = float(stdtrit(dof, (1 + confidence) / 2) * np.sqrt(variance / spread))
    everything = np.concatenate(hours)
    span_h = float(np.ptp(everything))
    return Drift(
        per_h=slope,
        per_h_lo=slope - half,
        per_h_hi=slope + half,
        span_h=span_h,
        over_span=float(np.expm1(slope * span_h)),
        launches=len(everything),
    )


def _launches(arm: Sequence[Observation]) -> list[tuple[float, float]]:
    """(start in Unix seconds, mean residual) of each launch of one arm.

    Only levels that all its launches have: elsewhere a level's mean is over other launches.
    """
    launches = list(dict.fromkeys(o.launch for o in arm))
    at = defaultdict(dict)
    for o in arm:
        at[o.level].setdefault(o.launch, []).append(o.log_value)
    shared = {level: values for level, values in at.items() if len(values) == len(launches)}
    if not shared:
        return []
    started_at = {o.launch: o.started_at for o in arm}
    table = np.array(
        [[np.mean(values[launch]) for launch in launches] for values in shared.values()]
    )
    effects = (table - table.mean(axis=1, keepdims=True)).mean(axis=0)
    return [
        (started_at[launch], float(effect))
        for launch, effect in zip(launches, effects, strict=True)
    ]
