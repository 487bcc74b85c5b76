"""What the report says: plain data and wording, no HTML and no drawing.

Levels are means over a level's valid trials; charts and tables are made from the same levels,
so they cannot disagree. Missing is None here and "–" on the page, never 0.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossover import records
from crossover.reasons import words
from crossover.report import appendix, cautions, figures
from crossover.report.levels import Level, levels_of, ordered, rows_of
from crossover.report.wording import (
    BADGES,
    LABELS,
    MISSING,
    Row,
    counted,
    crossing_words,
    engine_name,
    level_ratio,
    listed,
    milliseconds,
    moment,
    number,
    ratio,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    import pyarrow as pa

    from crossover.campaign import Campaign


@dataclass(frozen=True)
class Card:
    """One verdict: `facts` are (term, value) pairs in words."""

    title: str
    workload: str
    badge: str
    kind: str
    sentence: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """A table: the first `heads` cells of a row are its row headers, `numeric` are right-aligned."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    heads: int = 1
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class WorkloadView:
    """One workload's section."""

    name: str
    description: str
    figures: list[figures.Figure]
    policy: dict[str, Any] | None
    table: Table


@dataclass(frozen=True)
class View:
    """The whole page, top to bottom."""

    title: str
    facts: list[tuple[str, str]]
    rehearsal: bool
    cards: list[Card]
    no_cards: str
    warnings: list[cautions.Caution]
    workloads: list[WorkloadView]
    failures: Table | None
    sessions: Table
    session_details: list[tuple[str, list[tuple[str, str]]]]
    method: list[str]
    provenance: list[tuple[str, Any]]
    downloads: list[appendix.Download]
    files: list[tuple[str, str]]
    generated_at: str


def prepare(
    points: pa.Table | pd.DataFrame,
    sessions: pa.Table | pd.DataFrame,
    verdicts: Row,
    policy: Row,
    *,
    campaign: Campaign,
    provenance: Row,
    generated_at: str,
) -> View:
    """Turn the results into the page's contents; arguments as for `page.render`."""
    point_rows = rows_of(points, records.POINTS)
    session_rows = sorted(
        rows_of(sessions, records.SESSIONS),
        key=lambda s: (s["started_at"] is None, s["started_at"] or 0, s["session_id"] or ""),
    )
    levels = levels_of(point_rows, campaign)
    judged = verdicts["verdicts"]
    engines = {v.engine for v in campaign.variants.values()} | {s["engine"] for s in session_rows}
    return View(
        title=campaign.name,
        facts=_headline(campaign, point_rows, session_rows),
        rehearsal="simulated" in engines,
        cards=[_card(v, campaign) for v in judged],
        no_cards=_why_no_verdict(campaign, point_rows),
        warnings=cautions.find(campaign, point_rows, session_rows, levels, judged),
        workloads=[
            _workload(name, campaign, levels, judged, policy)
            for name in ordered(campaign.workloads, (p["workload"] for p in point_rows))
        ],
        failures=_failures(point_rows),
        sessions=_session_table(session_rows, point_rows),
        session_details=appendix.session_details(session_rows),
        method=appendix.method(campaign),
        provenance=appendix.provenance_items(provenance),
        downloads=appendix.downloads(point_rows, verdicts, policy, provenance, campaign),
        files=[
            (f"results/{campaign.name}/points.parquet", "one row a point, units in the names"),
            (f"results/{campaign.name}/requests.parquet", "one row a request"),
            (f"results/{campaign.name}/sessions.parquet", "one row a life of a server"),
            (f"results/{campaign.name}/verdicts.json", "the verdicts and their levels"),
            (f"results/{campaign.name}/policy.json", "which variant at which concurrency"),
        ],
        generated_at=generated_at,
    )


# ------------------------------------------------------------------ header and verdicts


def _headline(
    campaign: Campaign, points: Sequence[Row], sessions: Sequence[Row]
) -> list[tuple[str, str]]:
    engines = {(s["engine"], s["engine_version"]) for s in sessions if s["engine"]}
    engines = engines or {(v.engine, None) for v in campaign.variants.values()}
    times = [s["started_at"] for s in sessions if s["started_at"] is not None]
    times = times or [p["started_at"] for p in points if p["started_at"] is not None]
    days = sorted({moment(t)[:10] for t in times})
    measured = MISSING if not days else days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    trials = len({p["trial"] for p in points})
    return [
        ("Model", campaign.model.name),
        ("Engine", listed(sorted(engine_name(*e) for e in engines))),
        ("Baseline", campaign.baseline),
        ("Measured", measured),
        (
            "Extent",
            f"{counted(len(points), 'point')} in {counted(len(sessions), 'session')}, "
            f"{counted(trials, 'trial')}",
        ),
    ]


def _card(verdict: Row, campaign: Campaign) -> Card:
    badge, kind = BADGES[verdict["verdict"]]
    return Card(
        title=f"{verdict['variant']} against {verdict['baseline']}",
        workload=verdict["workload"],
        badge=badge,
        kind=kind,
        sentence=verdict["sentence"].replace(" %", "\N{NO-BREAK SPACE}%"),
        facts=list(_card_facts(verdict, campaign)),
    )


def _card_facts(verdict: Row, campaign: Campaign) -> Iterable[tuple[str, str]]:
    levels = verdict["levels"]
    for crossing in verdict["crossings"]:
        yield "Crosses at", crossing_words(crossing, campaign)
    if censored := verdict["censored"]:
        yield "No crossing", f"if there is one, it is {censored['side']} {censored['bound']}"
    for sign in ("+", "-", "?"):
        if at := [n["concurrency"] for n in levels if n["label"] == sign]:
            yield f"{LABELS[sign].capitalize()} at", listed(at)
    if levels:
        best = max(levels, key=lambda n: n["ratio"])
        worst = min(levels, key=lambda n: n["ratio"])
        if best is worst:
            yield "Ratio", level_ratio(best)
        else:
            yield "Largest ratio", level_ratio(best)
            yield "Smallest ratio", level_ratio(worst)
    if trials := verdict["n_trials"]:
        how = "compared within trials" if verdict["paired"] else "not paired"
        yield "Trials", f"{trials}, {how}" if trials > 1 else "1"
    supported = verdict["equivalence_margin_supported"]
    if supported is not None and verdict["verdict"] in ("equivalent", "inconclusive"):
        yield "Ruled out", f"a difference beyond ±{supported * 100:.1f} % at any level"
    if indicative := verdict["indicative"]:
        pairs = zip((n["concurrency"] for n in levels), indicative["labels"], strict=True)
        said = listed(f"{LABELS[label]} at {concurrency}" for concurrency, label in pairs)
        yield (
            "Indication only",
            f"if repeated runs varied by {indicative['assumed_cv'] * 100:g} %: {said}",
        )
    if needed := verdict["needed"]:
        yield (
            "To resolve",
            "; ".join(
                f"concurrency {n['concurrency']}: "
                + (
                    "too small a difference"
                    if n["trials"] is None
                    else f"about {n['trials']} trials"
                )
                for n in needed
            ),
        )
    if reasons := verdict["reasons"]:
        yield "Because", "; ".join(words(r) for r in reasons)


def _why_no_verdict(campaign: Campaign, points: Sequence[Row]) -> str:
    if not points:
        return "Nothing has been measured yet."
    measured = {p["variant"] for p in points}
    if len(measured) == 1:
        return f"Only {measured.pop()} was measured: there is nothing to compare it with."
    if campaign.baseline not in measured:
        return (
            f"The baseline {campaign.baseline} was not measured: nothing can be compared with it."
        )
    return "The results hold no verdict."


# ------------------------------------------------------------------ a workload


def _workload(
    name: str,
    campaign: Campaign,
    levels: Sequence[Level],
    judged: Sequence[Row],
    policy: Row,
) -> WorkloadView:
    mine = [level for level in levels if level.workload == name]
    judged = [v for v in judged if v["workload"] == name]
    drawn = [
        figures.speedup(
            name, reference, [v for v in judged if v["baseline"] == reference], mine, campaign
        )
        for reference in dict.fromkeys(v["baseline"] for v in judged)
    ]
    drawn += [
        figures.throughput(name, mine),
        figures.curve(name, mine),
        figures.latency(name, mine, "ttft_s", "Time to first token"),
        figures.latency(name, mine, "tpot_s", "Time per output token after the first"),
    ]
    if any(level.mean("acceptance_length") is not None for level in mine):
        drawn.append(figures.acceptance(name, mine))
    return WorkloadView(
        name=name,
        description=_workload_description(name, campaign),
        figures=drawn,
        policy=_policy(policy, name),
        table=_table(name, mine, judged, campaign),
    )


def _workload_description(name: str, campaign: Campaign) -> str:
    workload = campaign.workloads.get(name)
    if workload is None:
        return "This workload is not in the campaign file any more."
    length = "exactly" if workload.ignore_eos else "up to"
    return (
        f"Prompts from {workload.prompts}; {length} {workload.max_tokens} output tokens, "
        f"temperature {workload.temperature:g}."
    )


def _policy(policy: Row, workload: str) -> dict[str, Any] | None:
    """Rows `variant`, `range`, and `weight`: the width on a log scale, for the strip."""
    found = next((w for w in policy["workloads"] if w["workload"] == workload), None)
    if not found or not found["runs"]:
        return None
    rows = []
    for run in found["runs"]:
        first, last = run["from_concurrency"], run["to_concurrency"]
        span = str(first) if first == last else f"{first} to {last}"
        if not run["supported"]:
            span += " (best guess: not resolved)"
        weight = 1.0 + math.log2(last / first)
        rows.append({"variant": run["variant"], "range": span, "weight": round(weight, 3)})
    return {
        "rows": rows,
        "thresholds": [_threshold(switch) for switch in found["switching"]],
        "advice": policy["advice"],
    }


def _threshold(switch: Row) -> str:
    if switch["direction"] == "down":
        text = (
            f"{switch['variant']}: on at {switch['on_at_most']} requests in flight and below, "
            f"off at {switch['off_at_least']} and above"
        )
    else:
        text = (
            f"{switch['variant']}: on at {switch['on_at_least']} requests in flight and above, "
            f"off at {switch['off_at_most']} and below"
        )
    return text + (" (levels lie far apart here)" if switch["coarse"] else "")


def _table(
    workload: str, levels: Sequence[Level], judged: Sequence[Row], campaign: Campaign
) -> Table:
    compared: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    for v in judged:
        suffix = "" if v["baseline"] == campaign.baseline else f" (against {v['baseline']})"
        for n in v["levels"]:
            compared[v["variant"], n["concurrency"]].append(
                (
                    ratio(n["ratio"], n["lo"], n["hi"]) + suffix,
                    LABELS[n["label"]] + suffix,
                )
            )
    rows = []
    for n in sorted(levels, key=lambda n: n.concurrency):  # stable: variants keep their order
        cells = compared[n.variant, n.concurrency]
        if not cells:
            cells = [(MISSING, "baseline" if n.variant == campaign.baseline else MISSING)]
        requests, failed = n.total("requests"), n.total("failed")
        acceptance = n.mean("acceptance_length")
        rows.append(
            [
                str(n.concurrency),
                n.variant,
                number(n.mean("output_throughput_tokens_per_s")),
                f"{len(n.valid)} of {len(n.valid) + len(n.invalid)}",
                "; ".join(c[0] for c in cells),
                "; ".join(c[1] for c in cells),
                number(n.mean("decode_rate_tokens_per_s")),
                milliseconds(n.mean("ttft_s_p50")),
                milliseconds(n.mean("ttft_s_p99")),
                milliseconds(n.mean("tpot_s_p50")),
                milliseconds(n.mean("tpot_s_p99")),
                MISSING if acceptance is None else f"{acceptance:.2f}",
                MISSING if requests is None else f"{requests:,}",
                MISSING if failed is None else f"{failed:,}",
                _validity(n),
            ]
        )
    return Table(
        caption=(
            f"All levels of {workload}: means over valid trials; requests and failures of all "
            "trials. The ratio comes from the model of all trials and may differ from the quotient "
            "of the means."
        ),
        columns=[
            "Concurrency",
            "Variant",
            "Throughput, tokens/s",
            "Valid trials",
            "Ratio [bounds]",
            "Result",
            "Decode rate, tokens/s",
            "TTFT p50, ms",
            "TTFT p99, ms",
            "TPOT p50, ms",
            "TPOT p99, ms",
            "Acceptance length",
            "Requests",
            "Failures",
            "Validity",
        ],
        rows=rows,
        heads=2,
        numeric=frozenset({0, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13}),
    )


def _validity(level: Level) -> str:
    if not level.invalid:
        return "valid"
    reasons = dict.fromkeys(
        words(r) for p in level.invalid for r in p["invalid_reasons"] or ("no reason recorded",)
    )
    share = f"{len(level.invalid)} of {len(level.valid) + len(level.invalid)} invalid"
    return f"{share}: {'; '.join(reasons)}"


# ------------------------------------------------------------------ failures and sessions


def _failures(points: Sequence[Row]) -> Table | None:
    counts: Counter[tuple[str, str, int, str]] = Counter()
    for p in points:
        classes = dict(p["errors_by_class"] or {})
        unnamed = (p["failed"] or 0) - sum(classes.values())
        if unnamed > 0:
            classes["class not recorded"] = unnamed
        for name, n in classes.items():
            if n:
                counts[p["variant"], p["workload"], p["concurrency"], name] += n
    if not counts:
        return None
    return Table(
        caption="Requests that failed, over all trials. They delivered no tokens.",
        columns=["Variant", "Workload", "Concurrency", "Class", "Requests"],
        rows=[[v, w, str(c), name, f"{n:,}"] for (v, w, c, name), n in sorted(counts.items())],
        heads=1,
        numeric=frozenset({2, 4}),
    )


def _session_table(sessions: Sequence[Row], points: Sequence[Row]) -> Table:
    measured = Counter(p["session_id"] for p in points)

    def end(s: Row) -> str:
        text = s["stop_reason"] or MISSING
        if s["exit_code"] is not None:
            text += f", exit status {s['exit_code']}"
        return text + (", killed" if s["killed"] else "")

    return Table(
        caption="Every life of a server, in order of time.",
        columns=[
            "Started, UTC",
            "Variant",
            "Trial",
            "Ready after, s",
            "Points",
            "Stopped",
            "Engine",
            "Host",
            "Session",
        ],
        rows=[
            [
                moment(s["started_at"]).removesuffix(" UTC"),
                s["variant"] or MISSING,
                str(s["trial"] if s["trial"] is not None else MISSING),
                number(s["ready_after_s"]),
                str(measured[s["session_id"]]),
                end(s),
                engine_name(s["engine"], s["engine_version"]),
                s["host"] or MISSING,
                s["session_id"] or MISSING,
            ]
            for s in sessions
        ],
        heads=1,
        numeric=frozenset({2, 3, 4}),
    )
