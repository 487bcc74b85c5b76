"""The verdicts: all at a glance, and each in its sentence."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossover.reasons import words
from crossover.report.recommendation import threshold
from crossover.report.wording import (
    MISSING,
    Row,
    badge_of,
    comparison_name,
    counted,
    crossing_words,
    label_words,
    level_ratio,
    level_text,
    listed,
    percent,
    title_of,
    with_ratio,
)
from crossover.verdict_metrics import METRICS
from crossover.verdict_sentence import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from crossover.campaign import Campaign


WIDEST_RULED_OUT = 0.5
"""Relative difference that is worth saying that it was ruled out; nobody doubts a wider one."""


@dataclass(frozen=True)
class Card:
    """One verdict: `facts` are (term, value) pairs in words."""

    anchor: str
    title: str
    workload: str
    metric: str
    badge: str
    kind: str
    sentence: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class Glance:
    """All verdicts in one table: a row a comparison and workload, a cell a metric."""

    metrics: list[str]
    rows: list[tuple[str, str, list[Card | None], list[str]]]
    """(comparison, workload, cards, what each cell says)"""


def card(verdict: Row, campaign: Campaign, policy: Row) -> Card:
    """A verdict as a reader sees it."""
    badge, kind = badge_of(verdict)
    return Card(
        anchor="-".join(
            [
                "verdict",
                verdict["workload"],
                verdict["variant"],
                verdict["baseline"],
                verdict["metric"],
            ]
        ),
        title=f"{verdict['variant']} against {verdict['baseline']}",
        workload=verdict["workload"],
        metric=verdict["metric"],
        badge=badge,
        kind=kind,
        sentence=_sentence(verdict, campaign).replace(" %", "\N{NO-BREAK SPACE}%"),
        facts=list(_facts(verdict, campaign, policy)),
    )


def _sentence(verdict: Row, campaign: Campaign) -> str:
    """The verdict's own, with its metric where that is neither named in it nor the campaign's."""
    metric = verdict["metric"]
    if metric != UNNAMED or metric == campaign.analysis.metric:
        return verdict["sentence"]
    return f"{title_of(metric)}: {verdict['sentence']}"


def glance(judged: Sequence[Row], cards: Sequence[Card], campaign: Campaign) -> Glance:
    """Every verdict in a few words, linked to its sentence."""
    metrics = [m for m in METRICS if any(v["metric"] == m for v in judged)]
    metrics.sort(key=lambda m: m != campaign.analysis.metric)
    found: dict[tuple[str, str], dict[str, tuple[Card, str]]] = {}
    for v, c in zip(judged, cards, strict=True):
        row = found.setdefault((comparison_name(v, campaign), v["workload"]), {})
        row[v["metric"]] = (c, _in_short(v))
    return Glance(
        metrics=[title_of(m) for m in metrics],
        rows=[
            (
                name,
                workload,
                [cells[m][0] if m in cells else None for m in metrics],
                [cells[m][1] if m in cells else MISSING for m in metrics],
            )
            for (name, workload), cells in found.items()
        ],
    )


def _in_short(verdict: Row) -> str:
    badge, _ = badge_of(verdict)
    if verdict["verdict"] == "crossover":
        crossing = verdict["crossings"][0]
        better = label_words("+" if crossing["direction"] == "down" else "-", verdict["metric"])
        star, lo, hi = (verdict["axis"].below(end) for end in (crossing["c_star"], *crossing["ci"]))
        return f"{better} up to {star} [{lo}–{hi}]"
    if verdict["verdict"] in ("variant_faster_throughout", "baseline_faster_throughout"):
        ratios = [n["ratio"] for n in with_ratio(verdict)]
        span = f", {min(ratios):.2f}–{max(ratios):.2f}×" if ratios else ""
        return badge + span
    return badge


def _facts(verdict: Row, campaign: Campaign, policy: Row) -> Iterable[tuple[str, str]]:
    levels, metric, axis = verdict["levels"], verdict["metric"], verdict["axis"]
    for crossing in verdict["crossings"]:
        yield "Crosses at", crossing_words(crossing, campaign)
    if censored := verdict["censored"]:
        yield "No crossing", f"if there is one, it is {censored['side']} {censored['bound']:g}"
    if metric == policy["metric"]:
        for workload in policy["workloads"]:
            for switch in workload["switching"]:
                if (workload["workload"], switch["variant"]) == (
                    verdict["workload"],
                    verdict["variant"],
                ) and verdict["baseline"] == campaign.baseline:
                    yield "In practice", threshold(switch, axis).partition(": ")[2]
    judged_by_sign = verdict["verdict"] != "equivalent"
    for sign in ("+", "-", "?") if judged_by_sign else ():
        if found := [n["level"] for n in levels if n["label"] == sign]:
            yield f"{label_words(sign, metric).capitalize()} at", axis.at(*found)
    if known := with_ratio(verdict):
        best = max(known, key=lambda n: n["ratio"])
        worst = min(known, key=lambda n: n["ratio"])
        if best is worst:
            yield "Ratio", level_ratio(best)
        else:
            yield "Largest ratio", level_ratio(best)
            yield "Smallest ratio", level_ratio(worst)
    if trials := verdict["n_trials"]:
        how = (
            f"{trials} trials with both variants, compared within them"
            if verdict["paired"]
            else f"{trials} trials or more of each variant, not paired"
        )
        yield "Rests on", how if trials > 1 else "1 trial"
    if refinement := verdict["refinement"]:
        yield "Refinement", refinement["text"]
    if (floor := verdict["noise_floor"]) is not None:
        yield "Noise floor", f"two identical servers may differ by {percent(floor)[1:]}"
    supported = verdict["equivalence_margin_supported"]
    told = supported is not None and supported <= WIDEST_RULED_OUT
    if told and verdict["verdict"] in ("equivalent", "inconclusive"):
        yield "Ruled out", f"a difference beyond ±{supported * 100:.1f} % at any level"
    if indicative := verdict["indicative"]:
        pairs = zip((n["level"] for n in levels), indicative["labels"], strict=True)
        said = listed(
            f"{label_words(sign, metric)} at {level_text(place)}" for place, sign in pairs
        )
        yield (
            "Indication only",
            f"if repeated runs varied by {indicative['assumed_cv'] * 100:g} %: {said}",
        )
    if (needed := verdict["needed"]) and judged_by_sign:
        ways: dict[str, list[float]] = defaultdict(list)
        for n in needed:
            ways[_to_resolve(n)].append(n["level"])
        yield "To resolve", "; ".join(f"{axis.at(*at)}: {way}" for way, at in ways.items())
    if dropped := verdict["dropped_levels"]:
        yield "Left out", f"{axis.at(*dropped)}: one arm alone has a valid measurement there"
    if reasons := verdict["reasons"]:
        yield "Because", "; ".join(words(r) for r in reasons)


def _to_resolve(needed: Row) -> str:
    if needed["window_cv"] is not None:
        known_to = f"±{100 * needed['window_cv']:.0f}\N{NO-BREAK SPACE}%"
        return f"longer windows (load.steady), as one alone is known to {known_to} at best"
    if needed["trials"] is None:
        return "no sensible number of trials, so small is the difference"
    return f"about {counted(needed['trials'], 'trial')}"
