"""All levels of a workload as a table: the same numbers as its charts."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from crossover.reasons import words
from crossover.report.figure import Table
from crossover.report.figures import DECODE_RATE, THROUGHPUT
from crossover.report.wording import (
    MISSING,
    Row,
    label_words,
    level_text,
    milliseconds,
    number,
    ratio,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossover.axis import Axis
    from crossover.campaign import Campaign
    from crossover.report.levels import Level

_LATENCIES = [
    (f"{name} {quantile}, ms", f"{column}_{quantile}")
    for name, column in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("E2E", "e2e_s"))
    for quantile in ("p50", "p90", "p99")
]


def level_table(
    workload: str, levels: Sequence[Level], judged: Sequence[Row], campaign: Campaign, axis: Axis
) -> Table:
    """A row a level and variant; `judged` are the verdicts on the campaign's own metric."""
    compared: dict[tuple[str, float], list[tuple[str, str]]] = defaultdict(list)
    for v in judged:
        suffix = "" if v["baseline"] == campaign.baseline else f" (against {v['baseline']})"
        for n in v["levels"]:
            compared[v["variant"], n["level"]].append(
                (
                    ratio(n["ratio"], n["lo"], n["hi"]) + suffix,
                    label_words(n["label"], v["metric"]) + suffix,
                )
            )
    rows = []
    for n in sorted(levels, key=lambda n: n.level):  # stable: variants keep their order
        cells = compared[n.variant, n.level]
        if not cells:
            cells = [(MISSING, "baseline" if n.variant == campaign.baseline else MISSING)]
        requests, failed = n.total("requests"), n.total("failed")
        acceptance = n.mean("acceptance_length")
        rows.append(
            [
                level_text(n.level),
                n.variant,
                number(n.mean(THROUGHPUT)),
                f"{len(n.valid)} of {len(n.points)}",
                "; ".join(c[0] for c in cells),
                "; ".join(c[1] for c in cells),
                number(n.mean(DECODE_RATE)),
                *(milliseconds(n.mean(column)) for _, column in _LATENCIES),
                MISSING if acceptance is None else f"{acceptance:.2f}",
                MISSING if requests is None else f"{requests:,}",
                MISSING if failed is None else f"{failed:,}",
                _validity(n),
            ]
        )
    columns = [
        axis.words.capitalize(),
        "Variant",
        "Throughput, tokens/s",
        "Valid trials",
        "Ratio [bounds]",
        "Result",
        "Decode rate, tokens/s",
        *(title for title, _ in _LATENCIES),
        "Acceptance length",
        "Requests",
        "Failures",
        "Validity",
    ]
    return Table(
        caption=(
            f"All levels of {workload}: means over valid trials; requests and failures of all "
            "trials. The ratio comes from the model of all trials and may differ from the quotient "
            "of the means."
        ),
        columns=columns,
        rows=rows,
        heads=2,
        numeric=frozenset(range(len(columns))) - {1, 5, len(columns) - 1},
    )


def _validity(level: Level) -> str:
    if not level.invalid:
        return "valid"
    reasons = dict.fromkeys(
        words(r) for p in level.invalid for r in p["invalid_reasons"] or ("no reason recorded",)
    )
    return f"{len(level.invalid)} of {len(level.points)} invalid: {'; '.join(reasons)}"
