"""Levels: the trials of one variant × workload × concurrency, from the rows of a table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from crossover import records

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from crossover.campaign import Campaign
    from crossover.report.wording import Row


@dataclass(frozen=True)
class Level:
    """All trials of one variant × workload × concurrency."""

    variant: str
    workload: str
    concurrency: int
    valid: tuple[Row, ...]
    invalid: tuple[Row, ...]

    def mean(self, column: str) -> float | None:
        """Mean of a column over the valid trials that have it; None: none has."""
        values = [p[column] for p in self.valid if p[column] is not None]
        return sum(values) / len(values) if values else None

    def total(self, column: str) -> int | None:
        """Sum of a column over all trials that have it, valid or not; None: none has."""
        values = [p[column] for p in (*self.valid, *self.invalid) if p[column] is not None]
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


def ordered(known: Iterable[str], found: Iterable[str]) -> list[str]:
    """The campaign's order, then whatever else the results hold, sorted."""
    known = list(known)
    return known + sorted(set(found) - set(known))


def levels_of(points: Sequence[Row], campaign: Campaign) -> list[Level]:
    """All levels, variants in the campaign's order, concurrency ascending."""
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for p in points:
        groups[p["variant"], p["workload"], p["concurrency"]].append(p)
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
