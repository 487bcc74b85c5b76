"""What each figure shows: its rows, its caption, and its finding as alt text; no drawing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crossover.report.wording import (
    LABELS,
    Row,
    crossing_words,
    level_ratio,
    milliseconds,
    number,
    ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from crossover.campaign import Campaign
    from crossover.report.levels import Level

THROUGHPUT = "output_throughput_tokens_per_s"


@dataclass(frozen=True)
class Figure:
    """One chart: what is drawn (`kind` picks the drawing) and the finding as its alt text.

    Every row has `variant` and `concurrency`, and `said`: its value as a tooltip words it.
    """

    kind: str
    slug: str
    title: str
    note: str
    finding: str
    variants: list[str]
    levels: list[int]
    means: list[dict[str, Any]] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)
    crossings: list[dict[str, Any]] = field(default_factory=list)
    margin: float | None = None
    unit: str = ""


def _figure(kind: str, workload: str, levels: Sequence[Level], **rest: Any) -> Figure:
    rest.setdefault("slug", f"{kind}-{workload}")
    rest.setdefault("variants", list(dict.fromkeys(n.variant for n in levels)))
    return Figure(kind=kind, levels=sorted({n.concurrency for n in levels}), **rest)


def speedup(
    workload: str,
    reference: str,
    judged: Sequence[Row],
    levels: Sequence[Level],
    campaign: Campaign,
) -> Figure:
    """Throughput ratios of all variants that were judged against `reference`."""
    means = [
        {
            "variant": v["variant"],
            "concurrency": n["concurrency"],
            "ratio": n["ratio"],
            "lo": n["lo"],
            "hi": n["hi"],
            "said": f"{ratio(n['ratio'], n['lo'], n['hi'])}, {LABELS[n['label']]}",
        }
        for v in judged
        for n in v["levels"]
    ]
    crossings = [
        {
            "variant": v["variant"],
            "c_star": crossing["c_star"],
            "lo": crossing["ci"][0],
            "hi": crossing["ci"][1],
            "said": crossing_words(crossing, campaign),
        }
        for v in judged
        for crossing in v["crossings"]
    ]
    extremes = [
        f"{v['variant']}: largest ratio {level_ratio(max(v['levels'], key=by_ratio))}, "
        f"smallest {level_ratio(min(v['levels'], key=by_ratio))}."
        for by_ratio in [lambda n: n["ratio"]]
        for v in judged
        if v["levels"]
    ]
    variants = list(dict.fromkeys(v["variant"] for v in judged))
    trials = _trial_ratios(variants, reference, levels)
    return _figure(
        "speedup",
        workload,
        levels,
        slug=f"speedup-{workload}" + ("" if reference == campaign.baseline else f"-{reference}"),
        title=f"Speed-up over {reference}",
        note=" ".join(_speedup_note(reference, means, trials, crossings, campaign)),
        finding=" ".join([*(v["sentence"] for v in judged), *extremes])
        if means
        else "No level can be compared.",
        variants=variants,
        means=means,
        trials=trials,
        crossings=crossings,
        margin=campaign.analysis.margin,
    )


def _speedup_note(
    reference: str,
    means: Sequence[Row],
    trials: Sequence[Row],
    crossings: Sequence[Row],
    campaign: Campaign,
) -> Iterable[str]:
    analysis = campaign.analysis
    yield (
        f"Output throughput relative to {reference} at the same concurrency: above 1, the variant "
        "is faster. Large symbols are the estimates, small ones beside them single trials."
    )
    if not all(t["valid"] for t in trials):
        yield "Hollow symbols are invalid and left out."
    if any(m["lo"] is not None for m in means):
        yield (
            f"Each edge of a tinted band holds at all levels at once with "
            f"{analysis.confidence * 100:g} % confidence."
        )
    else:
        yield "There is no band: the data give no interval."
    yield (
        f"The grey strip is the margin of ±{analysis.margin * 100:g} %, within which a difference "
        "counts as none."
    )
    if crossings:
        yield "A dotted rule is an estimated crossing, the shaded column its interval."
    if len({m["concurrency"] for m in means}) > 1:
        yield "Lines between measured levels only guide the eye."


def _trial_ratios(
    variants: Iterable[str], reference: str, levels: Sequence[Level]
) -> list[dict[str, Any]]:
    """Throughput ratio of every trial in which both sides gave tokens, valid or not."""
    points = {
        (p["variant"], p["concurrency"], p["trial"]): p
        for level in levels
        for p in (*level.valid, *level.invalid)
        if p[THROUGHPUT]
    }
    return [
        {
            "variant": variant,
            "concurrency": concurrency,
            "trial": trial,
            "ratio": p[THROUGHPUT] / other[THROUGHPUT],
            "said": ratio(p[THROUGHPUT] / other[THROUGHPUT]),
            "valid": bool(p["valid"] and other["valid"]),
        }
        for (variant, concurrency, trial), p in points.items()
        if variant in variants and (other := points.get((reference, concurrency, trial)))
    ]


def throughput(workload: str, levels: Sequence[Level]) -> Figure:
    """Tokens/s of the server, means and trials."""
    means = [
        {
            "variant": n.variant,
            "concurrency": n.concurrency,
            "value": n.mean(THROUGHPUT),
            "said": f"{number(n.mean(THROUGHPUT))} tokens/s",
        }
        for n in levels
        if n.mean(THROUGHPUT) is not None
    ]
    trials = [
        {
            "variant": n.variant,
            "concurrency": n.concurrency,
            "trial": p["trial"],
            "value": p[THROUGHPUT],
            "said": f"{number(p[THROUGHPUT])} tokens/s",
            "valid": bool(p["valid"]),
        }
        for n in levels
        for p in (*n.valid, *n.invalid)
        if p[THROUGHPUT] is not None
    ]
    return _figure(
        "throughput",
        workload,
        levels,
        title="Output throughput",
        note=(
            "Tokens per second received in the window. Lines join the means of the valid trials; "
            "small symbols beside them are trials"
            + ("." if all(t["valid"] for t in trials) else ", hollow ones invalid.")
        ),
        finding=_highest(
            means, "value", lambda r: f"{r['said']} at concurrency {r['concurrency']}"
        ),
        means=means,
        trials=trials,
    )


def curve(workload: str, levels: Sequence[Level]) -> Figure:
    """Decode rate of one request against throughput of all."""
    means = [
        {
            "variant": n.variant,
            "concurrency": n.concurrency,
            "rate": rate,
            "value": total,
            "said": f"{number(rate)} tokens/s a request, {number(total)} in all",
        }
        for n in levels
        if (rate := n.mean("decode_rate_tokens_per_s")) is not None
        and (total := n.mean(THROUGHPUT)) is not None
    ]
    return _figure(
        "curve",
        workload,
        levels,
        title="What a user gets against what the server gives",
        note=(
            "Median decode rate of one request (across) against total output throughput (up), one "
            "symbol a level with its concurrency; further up and right is better."
        ),
        finding=_highest(
            means, "rate", lambda r: f"{r['said']}, at concurrency {r['concurrency']}"
        ),
        means=means,
    )


def _highest(rows: Sequence[Row], key: str, say: Callable[[Row], str]) -> str:
    """`Highest: a 12 …; b 9 …` – each series' greatest value."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["variant"] not in best or row[key] > best[row["variant"]][key]:
            best[row["variant"]] = row
    said = "; ".join(f"{name} {say(row)}" for name, row in best.items())
    return f"Highest: {said}." if said else "No level has a value."


def latency(workload: str, levels: Sequence[Level], what: str, title: str) -> Figure:
    """p50 and p99 of `ttft_s` or `tpot_s`."""
    means = [
        {
            "variant": n.variant,
            "concurrency": n.concurrency,
            "p50": p50 * 1000,
            "p99": None if n.mean(f"{what}_p99") is None else n.mean(f"{what}_p99") * 1000,
            "said": f"p50 {milliseconds(p50)} ms, p99 {milliseconds(n.mean(f'{what}_p99'))} ms",
        }
        for n in levels
        if (p50 := n.mean(f"{what}_p50")) is not None
    ]
    ends: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(means, key=lambda r: r["concurrency"]):
        ends[row["variant"]].append(row)
    said = "; ".join(
        f"{name} {number(rows[0]['p50'])} ms at concurrency {rows[0]['concurrency']}"
        + (f", {number(rows[-1]['p50'])} ms at {rows[-1]['concurrency']}" if len(rows) > 1 else "")
        for name, rows in ends.items()
    )
    return _figure(
        "latency",
        workload,
        levels,
        slug=f"{what.removesuffix('_s')}-{workload}",
        title=title,
        note=(
            "Solid symbols: p50; open symbols on thin lines: p99. Means over trials. Closed loop."
        ),
        finding=f"Median: {said}." if said else "No level has a value.",
        means=means,
        unit="ms",
    )


def acceptance(workload: str, levels: Sequence[Level]) -> Figure:
    """Acceptance length, of the variants whose engine tells."""
    means = [
        {
            "variant": n.variant,
            "concurrency": n.concurrency,
            "value": value,
            "said": f"{value:.2f} tokens a verification",
        }
        for n in levels
        if (value := n.mean("acceptance_length")) is not None
    ]
    return _figure(
        "acceptance",
        workload,
        levels,
        title="Acceptance length",
        note="Tokens a verification step yields: 1 + accepted drafts, by the engine's own counters.",
        finding=_highest(
            means, "value", lambda r: f"{r['said']} at concurrency {r['concurrency']}"
        ),
        variants=list(dict.fromkeys(r["variant"] for r in means)),
        means=means,
    )
