"""Levels: the trials of one variant × workload × level of load, from the rows of a table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crossover import records
from crossover.axis import AXES
from crossover.goodput import with_goodput
from crossover.verdict_metrics import METRICS, with_derived

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from crossover.campaign import Campaign
    from crossover.report.wording import Row


@dataclass(frozen=True)
class Level:
    """All trials of one variant × workload × level; `level` is on the axis of the points."""

    variant: str
    workload: str
    level: float
    valid: tuple[Row, ...]
    invalid: tuple[Row, ...]

    @property
    def points(self) -> tuple[Row, ...]:
        """All trials."""
        return (*self.valid, *self.invalid)

    def mean(self, column: str) -> float | None:
        """Mean of a column over the valid trials that have it; None: none has."""
        values = [p[column] for p in self.valid if p[column] is not None]
        return sum(values) / len(values) if values else None

    def total(self, column: str) -> int | None:
        """Sum of a column over all trials that have it, valid or not; None: none has."""
        values = [p[column] for p in self.points if p[column] is not None]
        return sum(values) if values else None


def rows_of(table: pa.Table | pd.DataFrame, columns: Sequence[records.Column]) -> list[dict]:
    """Plain dicts with every column of the contract; NaN is missing."""
    if not isinstance(table, pa.Table):
        table = pa.Table.from_pandas(
            table, schema=records.arrow_schema(columns), preserve_index=False
        )
    blank = dict.fromkeys(c.name for c in columns)
    return [
        blank | {k: None if v != v else v for k, v in row.items()}  # only NaN differs from itself
        for row in table.to_pylist()
    ]


def points_of(
    table: pa.Table | pd.DataFrame,
    campaign: Campaign,
    requests: str | os.PathLike[str] | None,
) -> list[dict[str, Any]]:
    """The points with `level`, their place on the axis, and with the column of every metric."""
    rows = rows_of(table, records.POINTS)
    axis = campaign.load.axis
    frame = table.to_pandas() if isinstance(table, pa.Table) else table
    if campaign.analysis.slo is not None and requests is not None:
        frame = with_goodput(frame, requests, campaign.analysis.slo)
    frame = with_derived(frame)
    metrics = [m.column for m in METRICS.values()]
    derived = frame.reindex(columns=metrics).astype(float).to_dict("records")
    return [
        row
        | {"level": axis.level(row[axis.name])}
        | {k: None if v != v else v for k, v in more.items()}
        for row, more in zip(rows, derived, strict=True)
    ]


def on_level(value: Any) -> Any:
    """A part of verdicts.json with the key `level` in place of its axis's name."""
    if isinstance(value, dict):
        return {"level" if k in AXES else k: on_level(v) for k, v in value.items()}
    return [on_level(v) for v in value] if isinstance(value, list) else value


def verdicts_of(verdicts: Mapping[str, Any]) -> list[Row]:
    """The verdicts with `level` as the key of a level, whatever their axis."""
    return [on_level(v) | {"axis": AXES[v["axis"]]} for v in verdicts["verdicts"]]


def ordered(known: Iterable[str], found: Iterable[str]) -> list[str]:
    """The campaign's order, then whatever else the results hold, sorted."""
    known = list(known)
    return known + sorted(set(found) - set(known))


def levels_of(points: Sequence[Row], campaign: Campaign) -> list[Level]:
    """All levels, variants in the campaign's order, levels ascending."""
    groups: dict[tuple[str, str, float], list[Row]] = defaultdict(list)
    for p in points:
        groups[p["variant"], p["workload"], p["level"]].append(p)
    order = ordered(campaign.variants, (p["variant"] for p in points))
    return [
        Level(
            *key,
            valid=tuple(p for p in by_trial if p["valid"]),
            invalid=tuple(p for p in by_trial if not p["valid"]),
        )
        for key in sorted(groups, key=lambda k: (order.index(k[0]), k[1], k[2]))
        for by_trial in [sorted(groups[key], key=lambda p: (p["trial"], p["session_id"] or ""))]
    ]
