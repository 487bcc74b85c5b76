"""What the report says: plain data and wording, no HTML and no drawing.

Levels are means over a level's valid trials; charts and tables are made from the same levels,
so they cannot disagree. Missing is None here and “–” on the page, never 0.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossover import records
from crossover.engines import ENGINES, get
from crossover.report import appendix, cautions, figures
from crossover.report.cards import Card, Glance, card, glance
from crossover.report.failures import Failures, failures, first_messages
from crossover.report.level_table import level_table
from crossover.report.levels import (
    levels_of,
    ordered,
    points_of,
    rows_of,
    verdicts_of,
)
from crossover.report.parity_sheet import Sheet, sheet_of
from crossover.report.recommendation import Recommendation, recommend
from crossover.report.speedup import speedup
from crossover.report.stability import drift_figure, session_table
from crossover.report.timeline import figure as timeline_figure
from crossover.report.timeline import read_series
from crossover.report.why import Why, explain
from crossover.report.wording import MISSING, Row, counted, engine_names, listed, moment, title_of
from crossover.rounds import FIRST_TRIAL

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

    from crossover.axis import Axis
    from crossover.campaign import Campaign
    from crossover.report.figure import Figure, Table
    from crossover.report.levels import Level
    from crossover.report.timeline import Place, Series


FEW_COMPARISONS = 3
"""Up to so many, each has a card; beyond, a table at a glance leads to their sentences."""


@dataclass(frozen=True)
class WorkloadView:
    """One workload's section."""

    name: str
    description: str
    ratios: list[Figure]
    """one a metric and reference"""
    why: list[Why]
    recommendation: Recommendation | None
    figures: list[Figure]
    table: Table
    parity: list[Sheet]


@dataclass(frozen=True)
class View:
    """The whole page, top to bottom."""

    title: str
    facts: list[tuple[str, str]]
    rehearsal: bool
    glance: Glance | None
    """None: the sentences of so few comparisons are seen at once"""
    cards: list[Card]
    """on the campaign's own metric"""
    other_cards: list[tuple[str, list[Card]]]
    """(metric in words, its verdicts)"""
    no_cards: str
    warnings: list[cautions.Caution]
    variants: list[str]
    metrics: list[tuple[str, str]]
    """(name, in words) of every metric that was judged, the campaign's own first"""
    workloads: list[WorkloadView]
    failures: Failures
    drift: Figure
    sessions: Table
    session_details: list[tuple[str, list[tuple[str, str]]]]
    method: list[str]
    provenance: list[tuple[str, Any]]
    downloads: list[appendix.Download]
    files: list[tuple[str, str]]
    generated_at: str

    @property
    def figures(self) -> Iterator[Figure]:
        """Every figure of the page."""
        for w in self.workloads:
            yield from w.ratios
            yield from (why.figure for why in w.why if why.figure is not None)
            yield from w.figures
        yield self.drift


def prepare(
    points: pa.Table | pd.DataFrame,
    sessions: pa.Table | pd.DataFrame,
    verdicts: Row,
    policy: Row,
    *,
    campaign: Campaign,
    provenance: Row,
    generated_at: str,
    requests: str | os.PathLike[str] | None,
) -> View:
    """Turn the results into the page's contents; arguments as for `page.render`."""
    axis = campaign.load.axis
    point_rows = points_of(points, campaign, requests)
    session_rows = sorted(
        rows_of(sessions, records.SESSIONS),
        key=lambda s: (s["started_at"] is None, s["started_at"] or 0, s["session_id"] or ""),
    )
    levels = levels_of(point_rows, campaign)
    judged = verdicts_of(verdicts)
    primary = [v for v in judged if v["metric"] == campaign.analysis.metric]
    cards = [card(v, campaign, policy) for v in judged]
    metrics = list(dict.fromkeys([campaign.analysis.metric, *(v["metric"] for v in judged)]))
    engines = {v.engine for v in campaign.variants.values()} | {s["engine"] for s in session_rows}
    series = {} if requests is None else read_series(requests, point_rows, axis)
    messages = {} if requests is None else first_messages(requests)
    return View(
        title=campaign.name,
        facts=_headline(campaign, point_rows, session_rows),
        rehearsal=any(get(name).rehearsal for name in engines if name in ENGINES),
        glance=glance(judged, cards, campaign) if len(primary) > FEW_COMPARISONS else None,
        cards=[c for c in cards if c.metric == campaign.analysis.metric],
        other_cards=[
            (title_of(m), [c for c in cards if c.metric == m])
            for m in metrics
            if m != campaign.analysis.metric
        ],
        no_cards=_why_no_verdict(campaign, point_rows),
        warnings=cautions.find(campaign, point_rows, session_rows, levels, judged, axis),
        variants=ordered(campaign.variants, (p["variant"] for p in point_rows)),
        metrics=[(m, title_of(m)) for m in metrics if any(v["metric"] == m for v in judged)],
        workloads=[
            _workload(name, campaign, levels, judged, policy, series, axis)
            for name in ordered(campaign.workloads, (p["workload"] for p in point_rows))
        ],
        failures=failures(point_rows, messages, axis),
        drift=drift_figure(levels, session_rows, primary, campaign, axis),
        sessions=session_table(session_rows, point_rows, campaign),
        session_details=appendix.session_details(session_rows),
        method=appendix.method(campaign, point_rows),
        provenance=appendix.provenance_items(provenance),
        downloads=appendix.downloads(point_rows, verdicts, policy, provenance, campaign),
        files=[
            (f"results/{campaign.name}/points.parquet", "one row a point, units in the names"),
            (f"results/{campaign.name}/requests.parquet", "one row a request"),
            (f"results/{campaign.name}/sessions.parquet", "one row a life of a server"),
            (f"results/{campaign.name}/verdicts.json", "the verdicts and their levels"),
            (f"results/{campaign.name}/policy.json", f"which variant at which {axis.words}"),
        ],
        generated_at=generated_at,
    )


def _headline(
    campaign: Campaign, points: Sequence[Row], sessions: Sequence[Row]
) -> list[tuple[str, str]]:
    engines = engine_names(sessions) or sorted({v.engine for v in campaign.variants.values()})
    times = [s["started_at"] for s in sessions if s["started_at"] is not None]
    times = times or [p["started_at"] for p in points if p["started_at"] is not None]
    days = sorted({moment(t)[:10] for t in times})
    measured = MISSING if not days else days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return [
        ("Model", campaign.model.name),
        ("Engine", listed(engines)),
        ("Baseline", campaign.baseline),
        ("Measured", measured),
        (
            "Extent",
            f"{_measured(campaign, points)} in {counted(len(sessions), 'session')}, "
            f"{_trials(points)}",
        ),
    ]


def _measured(campaign: Campaign, points: Sequence[Row]) -> str:
    """`36 points`; of a campaign that is not complete, `24 of 36 planned points`."""
    missing = sum(len(trials) for _, _, trials in cautions.missing(campaign, points))
    if not missing or campaign.imports:
        return counted(len(points), "point")
    load = campaign.load
    planned = len(campaign.variants) * len(campaign.workloads) * len(load.levels) * load.trials
    return f"{planned - missing} of {counted(planned, 'planned point')}"


def _trials(points: Sequence[Row]) -> str:
    trials = {p["trial"] for p in points}
    rounds = sum(trial >= FIRST_TRIAL for trial in trials)
    of_rounds = f", {rounds} of them {'a round' if rounds == 1 else 'rounds'} of refinement"
    return counted(len(trials), "trial") + (of_rounds if rounds else "")


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


def _workload(
    name: str,
    campaign: Campaign,
    levels: Sequence[Level],
    judged: Sequence[Row],
    policy: Row,
    series: Mapping[Place, Series],
    axis: Axis,
) -> WorkloadView:
    mine = [level for level in levels if level.workload == name]
    judged = [v for v in judged if v["workload"] == name]
    primary = [v for v in judged if v["metric"] == campaign.analysis.metric]
    crossings = [c["c_star"] for v in primary for c in v["crossings"]]
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for v in [*primary, *(v for v in judged if v["metric"] != campaign.analysis.metric)]:
        groups[v["metric"], v["baseline"]].append(v)
    drawn = [
        figures.curve(name, mine, axis),
        figures.throughput(name, mine, axis),
        *(figures.latency(name, mine, axis, what) for what in figures.LATENCIES),
        figures.acceptance(name, mine, axis),
        figures.positions(name, mine, axis),
        timeline_figure(name, mine, series, crossings[0] if crossings else None, axis),
    ]
    return WorkloadView(
        name=name,
        description=_description(name, campaign),
        ratios=[
            speedup(name, reference, group, mine, campaign, axis)
            for (_, reference), group in groups.items()
        ],
        why=[why for v in judged if (why := explain(v, name, mine, campaign, axis)) is not None],
        recommendation=recommend(policy, name, campaign, axis),
        figures=[figure for figure in drawn if figure is not None],
        table=level_table(name, mine, primary, campaign, axis),
        parity=[sheet for v in primary if (sheet := sheet_of(v, campaign)) is not None],
    )


def _description(name: str, campaign: Campaign) -> str:
    workload = campaign.workloads.get(name)
    if workload is None:
        return "This workload is not in the campaign file any more."
    if workload.prompts is None:
        return "Imported: its name is all that the files say of what was asked."
    length = "exactly" if workload.ignore_eos else "up to"
    source = _prompt_source(workload.prompts)
    return (
        f"Prompts {source}; {length} {workload.max_tokens} output tokens, "
        f"temperature {workload.temperature:g}."
    )


def _prompt_source(prompts: str | Mapping[str, Any]) -> str:
    if isinstance(prompts, str):
        return f"from {prompts}"
    settings = [f"{value} {name}" for name, value in prompts.items() if name != "text"]
    return f"of the supplied text {', '.join([prompts['text'], *settings])}"
