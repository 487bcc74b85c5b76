"""What each figure of measured values shows: throughput, latency, acceptance."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from crossover.report.figure import Figure, Table, figure_of
from crossover.report.wording import MISSING, Row, level_text, milliseconds, number
from crossover.verdict_metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from crossover.axis import Axis
    from crossover.report.levels import Level

THROUGHPUT = METRICS["output_throughput"].column
DECODE_RATE = METRICS["decode_rate"].column


def throughput(workload: str, levels: Sequence[Level], axis: Axis) -> Figure:
    """Tokens/s of the server, means and trials."""
    means = [
        {
            "variant": n.variant,
            "level": n.level,
            "value": n.mean(THROUGHPUT),
            "said": f"{number(n.mean(THROUGHPUT))} tokens/s",
        }
        for n in levels
        if n.mean(THROUGHPUT) is not None
    ]
    trials = [
        {
            "variant": n.variant,
            "level": n.level,
            "trial": p["trial"],
            "value": p[THROUGHPUT],
            "said": f"{number(p[THROUGHPUT])} tokens/s",
            "valid": bool(p["valid"]),
        }
        for n in levels
        for p in n.points
        if p[THROUGHPUT] is not None
    ]
    return figure_of(
        "throughput",
        workload,
        levels,
        axis=axis,
        title="Output throughput of the server",
        note=(
            "Tokens per second received in the window. Lines join the means of the valid trials; "
            "small symbols beside them are trials"
            + ("." if all(t["valid"] for t in trials) else ", hollow ones invalid.")
        ),
        finding=_highest(means, "value", axis),
        means=means,
        trials=trials,
    )


def curve(workload: str, levels: Sequence[Level], axis: Axis) -> Figure:
    """Decode rate of one request against throughput of all."""
    means = [
        {
            "variant": n.variant,
            "level": n.level,
            "rate": rate,
            "value": total,
            "said": f"{number(rate)} tokens/s a request, {number(total)} in all",
        }
        for n in levels
        if (rate := n.mean(DECODE_RATE)) is not None and (total := n.mean(THROUGHPUT)) is not None
    ]
    return figure_of(
        "curve",
        workload,
        levels,
        axis=axis,
        title="What one user gets against what the server gives",
        note=(
            "Median decode rate of one request (across) against total output throughput (up), one "
            f"symbol a level, its {axis.words} beside it where there is room; further up and right is "
            "better."
        ),
        finding=_highest(means, "rate", axis),
        means=means,
    )


def _highest(rows: Sequence[Row], key: str, axis: Axis) -> str:
    """`Highest: a 12 …; b 9 …` – each series' greatest value."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["variant"] not in best or row[key] > best[row["variant"]][key]:
            best[row["variant"]] = row
    said = "; ".join(
        f"{name} {row['said']} at {axis.at(row['level'])}" for name, row in best.items()
    )
    return f"Highest: {said}." if said else "No valid level has a value."


LATENCIES = {
    "ttft_s": ("Time to first token", "From sending a request to its first token."),
    "tpot_s": ("Time per output token", "After the first token, of one request."),
    "e2e_s": ("Whole answer", "From sending a request to the end of its answer."),
}


def latency(workload: str, levels: Sequence[Level], axis: Axis, what: str) -> Figure:
    """p50 and p99 of one of LATENCIES."""
    title, meaning = LATENCIES[what]
    means = [
        {
            "variant": n.variant,
            "level": n.level,
            "p50": p50 * 1000,
            "p99": None if n.mean(f"{what}_p99") is None else n.mean(f"{what}_p99") * 1000,
            "said": ", ".join(
                f"{q} {milliseconds(n.mean(f'{what}_{q}'))} ms" for q in ("p50", "p90", "p99")
            ),
        }
        for n in levels
        if (p50 := n.mean(f"{what}_p50")) is not None
    ]
    ends: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(means, key=lambda r: r["level"]):
        ends[row["variant"]].append(row)
    said = "; ".join(
        f"{name} {_median(rows[0], axis)}"
        + (f", {_median(rows[-1], axis)}" if len(rows) > 1 else "")
        for name, rows in ends.items()
    )
    return figure_of(
        "latency",
        workload,
        levels,
        axis=axis,
        slug=f"{what.removesuffix('_s')}-{workload}",
        title=title,
        note=f"{meaning} Solid: p50; open symbols: p99. Means over trials, {axis.loop}.",
        finding=f"Median: {said}." if said else "No valid level has a value.",
        means=means,
        unit="ms",
    )


def _median(row: Row, axis: Axis) -> str:
    return f"{number(row['p50'])} ms at {axis.at(row['level'])}"


def acceptance(workload: str, levels: Sequence[Level], axis: Axis) -> Figure | None:
    """Acceptance length, of the variants whose engine tells; None: no engine does."""
    means = [
        {
            "variant": n.variant,
            "level": n.level,
            "value": value,
            "said": f"{value:.2f} tokens a verification",
        }
        for n in levels
        if (value := n.mean("acceptance_length")) is not None
    ]
    if not means:
        return None
    return figure_of(
        "acceptance",
        workload,
        levels,
        axis=axis,
        title="Acceptance length by level",
        note="Tokens a verification yields: 1 + accepted drafts, by the engine's own counters.",
        finding=_range_by_variant(means, lambda r: f"{r['value']:.2f}", "tokens a verification"),
        variants=list(dict.fromkeys(r["variant"] for r in means)),
        means=means,
    )


def positions(workload: str, levels: Sequence[Level], axis: Axis) -> Figure | None:
    """Share of the verifications that accept each drafted token; None: no engine tells."""
    shares = {(n.variant, n.level): found for n in levels if (found := _by_position(n)) is not None}
    if not shares:
        return None
    rows = [
        {
            "variant": variant,
            "level": level,
            "position": position,
            "value": value,
            "said": f"{100 * value:.1f} %",
        }
        for (variant, level), values in shares.items()
        for position, value in enumerate(values, start=1)
    ]
    longest = max(map(len, shares.values()))
    return figure_of(
        "positions",
        workload,
        levels,
        axis=axis,
        title="Acceptance by position of the draft",
        note=(
            "Share of the verifications in which the draft at this position was accepted. One line "
            "a level: lines that lie on each other say that acceptance does not depend on load."
        ),
        finding=_range_by_variant(
            [r for r in rows if r["position"] == 1], lambda r: r["said"], "at the first position"
        ),
        variants=list(dict.fromkeys(variant for variant, _ in shares)),
        means=rows,
        table=Table(
            caption=f"Share accepted at each position of the draft, {workload}.",
            columns=[axis.words.capitalize(), "Variant", *map(str, range(1, longest + 1))],
            rows=[
                [
                    level_text(level),
                    variant,
                    *(f"{100 * v:.1f} %" for v in values),
                    *[MISSING] * (longest - len(values)),
                ]
                for (variant, level), values in sorted(shares.items(), key=lambda i: i[0][1])
            ],
            heads=2,
            numeric=frozenset({0, *range(2, longest + 2)}),
        ),
    )


def _by_position(level: Level) -> list[float] | None:
    """Mean over the valid trials that have it, position by position."""
    known = [p["accepted_per_position"] for p in level.valid if p["accepted_per_position"]]
    if not known:
        return None
    shortest = min(map(len, known))
    return [sum(values[i] for values in known) / len(known) for i in range(shortest)]


def _range_by_variant(rows: Sequence[Row], say: Callable[[Row], str], unit: str) -> str:
    """`ngram-3 1.80 to 1.92 tokens a verification` – from the lowest to the highest, by variant."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["variant"]].append(row)
    parts = []
    for name, mine in found.items():
        lowest, highest = (say(pick(mine, key=lambda r: r["value"])) for pick in (min, max))
        span = lowest if lowest == highest else f"{lowest} to {highest}"
        parts.append(f"{name} {span} {unit}")
    return f"{'; '.join(parts)}, over the levels tested."
