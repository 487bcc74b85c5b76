"""From points to the observations of a comparison, and what had to be left out."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crossover.blocks import Block, Launch, form_blocks
from crossover.stats.model import Observation
from crossover.verdict_metrics import axis_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    import pandas as pd

    from crossover.axis import Axis
    from crossover.stats.model import Settings
    from crossover.verdict_metrics import Metric


@dataclass(frozen=True)
class Arms:
    """What is known of the arms of a comparison, by variant."""

    axis: Axis
    usable: list[dict[str, Any]]
    """points that may carry a verdict, with `level` and `value`, the metric"""
    bad_rows: list[dict[str, Any]]
    """{concurrency, variant, trial, reasons} of the others"""
    observations: Mapping[str, list[Observation]]
    """of the points whose value has a logarithm"""
    zeros: Mapping[str, Mapping[float, list[Hashable]]]
    """variant → level → trials whose value is 0"""
    blocks: Mapping[Launch, Block]

    @classmethod
    def of(
        cls,
        points: pd.DataFrame,
        metric: Metric,
        settings: Settings,
        variants: Sequence[str],
        block_span_h: float,
    ) -> Arms:
        """The arms `variants` of a table of points of one workload."""
        axis = axis_of(points)
        usable, bad_rows = usable_points(points, metric, settings, variants, axis)
        launches = [Launch.of(point) for point in usable]
        blocks = form_blocks(launches, block_span_h)
        sign = 1 if metric.higher_is_better else -1
        observations = defaultdict(list)
        zeros = defaultdict(lambda: defaultdict(list))
        for point, launch in zip(usable, launches, strict=True):
            if point["value"] == 0:
                zeros[launch.variant][point["level"]].append(launch.trial)
                continue
            observations[launch.variant].append(
                Observation(
                    level=point["level"],
                    trial=launch.trial,
                    launch=launch.trial if launch.session_id is None else launch.session_id,
                    block=blocks[launch],
                    log_value=sign * math.log(point["value"]),
                    cv_within=number(point.get(metric.cv_column)) or 0.0,
                    started_at=launch.started_at,
                )
            )
        return cls(axis, usable, bad_rows, observations, zeros, blocks)

    def without_window_noise(self) -> Arms:
        """As if every window were long enough for its own noise to vanish."""
        steady = {
            arm: [replace(o, cv_within=0.0) for o in of_arm]
            for arm, of_arm in self.observations.items()
        }
        return replace(self, observations=defaultdict(list, steady))

    def levels(self, variant: str) -> set[float]:
        """Levels at which a variant has a usable point."""
        return {o.level for o in self.observations[variant]} | set(self.zeros[variant])


def usable_points(
    points: pd.DataFrame,
    metric: Metric,
    settings: Settings,
    variants: Iterable[str],
    axis: Axis,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split the variants' points into those that may carry a verdict and the rest.

    Returns:
        The usable points as dicts, with `value`, the metric, and `level`; and the others as
        {concurrency, variant, trial, reasons}.
    """
    usable, bad = [], []
    for point in points[points["variant"].isin(list(variants))].to_dict("records"):
        level, value = number(point.get(axis.name)), number(point.get(metric.column))
        if reasons := _faults(point, level, value, metric, settings, axis):
            named = {"concurrency": None if level is None else axis.level(level)}
            named |= {"variant": point["variant"], "trial": point["trial"], "reasons": reasons}
            bad.append(named)
        else:
            usable.append({**point, "level": axis.level(level), "value": value})
    return usable, bad


def number(value: Any) -> float | None:
    """A finite number, or None."""
    try:
        converted = float(value)
    except (TypeError, ValueError):
        return None
    return converted if math.isfinite(converted) else None


def _faults(
    point: Mapping[str, Any],
    level: float | None,
    value: float | None,
    metric: Metric,
    settings: Settings,
    axis: Axis,
) -> list[str]:
    """Why a point cannot carry a verdict; empty if it can."""
    valid = point.get("valid")
    if isinstance(valid, (bool, np.bool_)) and not valid:
        stated = point.get("invalid_reasons")
        return (
            list(stated) if isinstance(stated, (list, np.ndarray)) and len(stated) else ["invalid"]
        )
    faults = []
    if level is None or level <= 0 or (axis.closed_loop and level != int(level)):
        faults.append(f"bad_{axis.name}")
    if value is None:
        faults.append("no_value")
    elif value < 0 or (value == 0 and not metric.zero_is_loss):
        faults.append("zero_value")
    if (number(point.get("error_share")) or 0.0) > settings.max_error_share:
        faults.append("errors")
    return faults
