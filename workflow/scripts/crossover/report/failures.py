"""Requests that failed, by class; and where nobody knows, that."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from crossover.report.figure import Table
from crossover.report.wording import MISSING, Row, counted, level_text

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from crossover.axis import Axis

UNNAMED = "class not recorded"

Example = tuple[str, str, str]
"""variant, workload, class"""


@dataclass(frozen=True)
class Failures:
    """What is known of failures: `summary` says it, `table` has a row a class; None: no failure."""

    summary: str
    table: Table | None


def first_messages(requests: str | os.PathLike[str]) -> dict[Example, str]:
    """What the server said to the first failed request of each variant, workload and class."""
    columns = ["variant", "workload", "error_class", "error_message"]
    failed = pq.read_table(requests, columns=columns, filters=[("status", "=", "failed")])
    found: dict[Example, str] = {}
    for row in failed.to_pylist():
        if row["error_message"]:
            key = (row["variant"], row["workload"], row["error_class"] or UNNAMED)
            found.setdefault(key, row["error_message"])
    return found


def failures(points: Sequence[Row], messages: Mapping[Example, str], axis: Axis) -> Failures:
    """Failures of all points, over trials."""
    counts: Counter[tuple[str, str, float, str]] = Counter()
    sent: Counter[tuple[str, str, float]] = Counter()
    for p in points:
        place = (p["variant"], p["workload"], p["level"])
        sent[place] += p["requests"] or 0
        classes = dict(p["errors_by_class"] or {})
        if unnamed := max(0, (p["failed"] or 0) - sum(classes.values())):
            classes[UNNAMED] = unnamed
        for name, n in classes.items():
            counts[(*place, name)] += n
    counts = +counts
    return Failures(
        summary=_summary(points, counts.total()),
        table=_table(counts, sent, messages, axis) if counts else None,
    )


def _summary(points: Sequence[Row], failed: int) -> str:
    if not points:
        return "Nothing was measured, so nothing failed."
    unknown = [p for p in points if p["failed"] is None]
    total = sum(p["requests"] or 0 for p in points if p["failed"] is not None)
    known = (
        f"{failed:,} of {total:,} requests failed."
        if failed
        else f"None of {total:,} requests failed."
    )
    if not unknown:
        return known
    where = "any point" if len(unknown) == len(points) else counted(len(unknown), "point")
    text = f"How many requests failed is not known of {where}: the results do not say."
    return text if len(unknown) == len(points) else f"{known} {text}"


def _table(
    counts: Mapping[tuple[str, str, float, str], int],
    sent: Mapping[tuple[str, str, float], int],
    messages: Mapping[Example, str],
    axis: Axis,
) -> Table:
    return Table(
        caption="Requests that failed, over all trials. They delivered no tokens.",
        columns=[
            "Variant",
            "Workload",
            axis.words.capitalize(),
            "Class",
            "Requests",
            "Of sent",
            "First message",
        ],
        rows=[
            [
                variant,
                workload,
                level_text(level),
                name,
                f"{n:,}",
                f"{sent[variant, workload, level]:,}"
                if sent[variant, workload, level]
                else MISSING,
                messages.get((variant, workload, name), MISSING),
            ]
            for (variant, workload, level, name), n in sorted(counts.items())
        ],
        numeric=frozenset({2, 4, 5}),
    )
