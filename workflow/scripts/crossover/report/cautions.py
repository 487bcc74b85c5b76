"""What limits the results, in words."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossover.reasons import remedy, words
from crossover.report.wording import (
    Row,
    comparison_name,
    listed,
    percent,
    session_name,
    title_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from crossover.axis import Axis
    from crossover.campaign import Campaign
    from crossover.report.levels import Level


@dataclass(frozen=True)
class Caution:
    """What limits the results: a heading and one line an item."""

    title: str
    items: list[str]
    serious: bool = False


def find(
    campaign: Campaign,
    points: Sequence[Row],
    sessions: Sequence[Row],
    levels: Sequence[Level],
    judged: Sequence[Row],
    axis: Axis,
) -> list[Caution]:
    """The cautions that there are; an empty list means none of them applies."""
    primary = [v for v in judged if v["metric"] == campaign.analysis.metric]
    found = [
        Caution("Not measured", _not_measured(campaign, points, axis), serious=True),
        Caution("Limits of the verdicts", _limits(campaign, judged, axis)),
        Caution("Invalid points, left out of the verdicts", _invalid(levels, axis), serious=True),
        Caution("Failed requests", _failed(levels)),
        Caution("Too few trials", _few_trials(campaign, primary)),
        Caution("Change over time", _drift(campaign, primary)),
        Caution("Remarks on points", _remarks(points, axis)),
        Caution("Sessions", _session_problems(sessions), serious=True),
    ]
    return [w for w in found if w.items]


def _not_measured(campaign: Campaign, points: Sequence[Row], axis: Axis) -> list[str]:
    done = {(p["variant"], p["workload"], p["level"], p["trial"]) for p in points}
    items = []
    for variant in campaign.variants:
        for workload in campaign.workloads:
            missing = {
                c: [
                    t
                    for t in range(1, campaign.load.trials + 1)
                    if (variant, workload, c, t) not in done
                ]
                for c in campaign.load.levels
            }
            if any(missing.values()):
                items.append(f"{variant}, {workload}: {_where(missing, axis)}")
    if items and not campaign.imports:
        items.append("To do: run the campaign again, which measures what is missing")
    return items


def _where(trials_at: Mapping[float, Sequence[int]], axis: Axis) -> str:
    """`concurrency 1, 4 (trials 1, 2); concurrency 16 (trial 2)`."""
    levels: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for level, trials in sorted(trials_at.items()):
        if trials:
            levels[tuple(sorted(trials))].append(level)
    return "; ".join(
        f"{axis.at(*those)} (trial{'' if len(trials) == 1 else 's'} {listed(trials)})"
        for trials, those in levels.items()
    )


def _limits(campaign: Campaign, judged: Sequence[Row], axis: Axis) -> list[str]:
    """What a verdict on several metrics repeats is said once."""
    items: dict[tuple[str, str], str] = {}
    for verdict in judged:
        where = f"{comparison_name(verdict, campaign)}, {verdict['workload']}: "
        metric = verdict["metric"]
        named = "" if metric == campaign.analysis.metric else f"{title_of(metric)}: "
        for caveat in verdict["caveats"]:
            items.setdefault((where, caveat["text"]), f"{where}{named}{caveat['text']}")
        for arm, feasible in verdict["feasible_max"].items():
            if feasible is not None and feasible < max(campaign.load.levels):
                text = f"the highest valid level of {verdict[arm]} is {axis.at(feasible)}"
                items.setdefault((where, text), where + text)
    return list(items.values())


def _drift(campaign: Campaign, judged: Sequence[Row]) -> list[str]:
    """Drifts that can be told from none."""
    return [
        f"{comparison_name(v, campaign)}, {v['workload']}: {title_of(v['metric'])} changed by "
        f"{percent(drift['over_span'])} from the first session to the last"
        for v in judged
        if (drift := v["drift"]) is not None and drift["per_h_lo"] * drift["per_h_hi"] > 0
    ]


def _remarks(points: Sequence[Row], axis: Axis) -> list[str]:
    """What is remarked on every point is said once."""
    remarks = [dict.fromkeys(p["warnings"] or ()) for p in points]
    shared = [text for text in (remarks[0] if remarks else ()) if all(text in r for r in remarks)]
    rest = _grouped(points, lambda p: [t for t in p["warnings"] or () if t not in shared], axis)
    return [f"all points: {words(text)}{_to_do(text, points[0])}" for text in shared] + rest


def _grouped(points: Sequence[Row], texts: Callable[[Row], Iterable[str]], axis: Axis) -> list[str]:
    """One line a (variant, workload, text) with its levels and trials."""
    groups: dict[tuple[str, str, str, str], dict[float, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for p in points:
        for text in texts(p):
            groups[p["variant"], p["workload"], text, _to_do(text, p)][p["level"]].append(
                p["trial"]
            )
    return [
        f"{variant}, {workload}: {words(text)} – {_where(those, axis)}{to_do}"
        for (variant, workload, text, to_do), those in groups.items()
    ]


def _to_do(text: str, point: Row) -> str:
    """What to do about a point that was measured here; another tool's has no settings of ours."""
    advice = None if point["source"] else remedy(text)
    return f". To do: {advice}" if advice else ""


def _invalid(levels: Sequence[Level], axis: Axis) -> list[str]:
    return _grouped(
        [p for level in levels for p in level.invalid],
        lambda p: p["invalid_reasons"] or ("no reason was recorded",),
        axis,
    )


def _failed(levels: Sequence[Level]) -> list[str]:
    totals: dict[tuple[str, str], list[int]] = {}
    for level in levels:
        failed, sent = level.total("failed"), level.total("requests")
        if failed:
            sums = totals.setdefault((level.variant, level.workload), [0, 0])
            sums[0] += failed
            sums[1] += sent or 0
    return [
        f"{variant}, {workload}: {failed:,} of {sent:,} requests at the levels with failures "
        "(by class below)"
        for (variant, workload), (failed, sent) in totals.items()
    ]


def _few_trials(campaign: Campaign, judged: Sequence[Row]) -> list[str]:
    more = (
        "import three runs or more of every level"
        if campaign.imports
        else "set load.trials to 3 or more"
    )
    return [
        f"{comparison_name(v, campaign)}, {v['workload']}: one trial gives no interval, so there is no "
        f"verdict; {more}"
        for v in judged
        if v["n_trials"] == 1
    ]


def _session_problems(sessions: Sequence[Row]) -> list[str]:
    items = []
    versions: dict[str, set[str]] = defaultdict(set)
    for s in sessions:
        if s["engine"] and s["engine_version"]:
            versions[s["engine"]].add(s["engine_version"])
        if s["killed"]:
            items.append(f"{session_name(s)}: the server did not end when asked and was killed")
        if s["processes_left"]:
            items.append(f"{session_name(s)}: processes {listed(s['processes_left'])} outlived it")
        if s["port_closed"] is False:
            items.append(f"{session_name(s)}: its port was still open after the stop")
    items += [
        f"{engine} ran in several versions: {listed(sorted(found))}"
        for engine, found in sorted(versions.items())
        if len(found) > 1
    ]
    hosts = sorted({s["host"] for s in sessions if s["host"]})
    if len(hosts) > 1:
        items.append(f"sessions ran on several hosts: {listed(hosts)}")
    return items
