"""Every comparison at every level as CSV, for spreadsheets."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from crossover.report.wording import label_words
from crossover.verdict_metrics import metric_of

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPARISON = ("variant", "baseline", "workload", "metric")
VALUES = (
    *("ratio", "lo", "hi", "baseline_mean", "variant_mean"),
    *("baseline_trials", "variant_trials"),
)


def as_csv(verdicts: Mapping[str, Any]) -> str:
    """A row a comparison × workload × metric × level; missing is empty.

    `column` is the metric's in points.parquet and gives the unit of the means.

    Args:
        verdicts: what verdicts.json holds.
    """
    out = io.StringIO()
    writer = csv.DictWriter(
        out, [*COMPARISON, "column", "axis", "level", "result", *VALUES], lineterminator="\n"
    )
    writer.writeheader()
    for verdict in verdicts["verdicts"]:
        for level in verdict["levels"]:
            writer.writerow(
                {
                    **{name: verdict[name] for name in COMPARISON},
                    "column": metric_of(verdict["metric"]).column,
                    "axis": verdict["axis"],
                    "level": level[verdict["axis"]],
                    "result": label_words(level["label"], verdict["metric"]),
                    **{name: level[name] for name in VALUES},
                }
            )
    return out.getvalue()
