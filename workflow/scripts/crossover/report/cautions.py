"""What limits the results, in words."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossover.reasons import remedy, words
from crossover.report.wording import (
    Row,
    comparison_name,
    joined,
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
    in_order = [p for level in levels for p in level.points]
    primary = [v for v in judged if v["metric"] == campaign.analysis.metric]
    found = [
        Caution("Not measured", _not_measured(campaign, points, axis), serious=True),
        Caution("Limits of the verdicts", _limits(campaign, judged)),
        Caution(
            "Invalid points, left out of the verdicts",
            _grouped(in_order, _invalid_reasons, axis),
            serious=True,
        ),
        Caution("Failed requests", _failed(levels)),
        Caution("Too few trials", _few_trials(campaign, primary)),
        Caution("Change over time", _drift(campaign, primary)),
        Caution("Remarks on points", _grouped(in_order, lambda p: p["warnings"] or (), axis)),
        Caution("Sessions", _session_problems(sessions, points), serious=True),
    ]
    return [w for w in found if w.items]


Place = tuple[str, str]
"""variant, or the name of a comparison; and workload"""


def missing(campaign: Campaign, points: Sequence[Row]) -> Iterable[tuple[Place, float, list[int]]]:
    """(place, level, trials) of what was planned and not measured; rounds of refinement aside."""
    done = {(p["variant"], p["workload"], p["level"], p["trial"]) for p in points}
    for place in itertools.product(campaign.variants, campaign.workloads):
        for level in campaign.load.levels:
            planned = range(1, campaign.load.trials + 1)
            if trials := [t for t in planned if (*place, level, t) not in done]:
                yield place, level, trials


def _not_measured(campaign: Campaign, points: Sequence[Row], axis: Axis) -> list[str]:
    found: dict[Place, dict[float, list[int]]] = defaultdict(dict)
    for place, level, trials in missing(campaign, points):
        found[place][level] = trials
    items = _places(found, axis)
    if items and not campaign.imports:
        items.append("To do: run the campaign again, which measures what is missing")
    return items


def _places(trials_at: Mapping[Place, Mapping[float, Sequence[int]]], axis: Axis) -> list[str]:
    """`plain, chat and code, at concurrency 1, 4 (trials 1, 2)`: alike places together."""
    alike: dict[str, list[Place]] = defaultdict(list)
    for place, of_place in trials_at.items():
        alike[_where(of_place, axis)].append(place)
    return [f"{names(places)}, at {where}" for where, places in alike.items()]


def names(places: Iterable[Place]) -> str:
    """`plain and ngram-3, chat and code`: variants of the same workloads together."""
    workloads: dict[str, list[str]] = defaultdict(list)
    for variant, workload in places:
        workloads[variant].append(workload)
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for variant, those in workloads.items():
        alike[tuple(those)].append(variant)
    return "; ".join(f"{joined(variants)}, {joined(those)}" for those, variants in alike.items())


def _where(trials_at: Mapping[float, Sequence[int]], axis: Axis) -> str:
    """`concurrency 1, 4 (trials 1, 2) and concurrency 16 (trial 2)`."""
    levels: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for level, trials in sorted(trials_at.items()):
        levels[tuple(sorted(trials))].append(level)
    return joined(
        f"{axis.at(*those)} (trial{'' if len(trials) == 1 else 's'} {listed(trials)})"
        for trials, those in levels.items()
    )


def _limits(campaign: Campaign, judged: Sequence[Row]) -> list[str]:
    """What several verdicts repeat, on one metric or another, is said once."""
    found: dict[str, dict[Place, str]] = defaultdict(dict)
    for verdict in judged:
        place = comparison_name(verdict, campaign), verdict["workload"]
        metric = verdict["metric"]
        named = "" if metric == campaign.analysis.metric else f"{title_of(metric)}: "
        for caveat in verdict["caveats"]:
            found[caveat["text"]].setdefault(place, named)
    return [
        f"{names(p for p, metric in places.items() if metric == named)}: {named}{text}"
        for text, places in found.items()
        for named in dict.fromkeys(places.values())
    ]


def _drift(campaign: Campaign, judged: Sequence[Row]) -> list[str]:
    """Drifts that can be told from none."""
    return [
        f"{comparison_name(v, campaign)}, {v['workload']}: {title_of(v['metric'])} changed by "
        f"{percent(drift['over_span'])} from the first session to the last"
        for v in judged
        if (drift := v["drift"]) is not None and drift["per_h_lo"] * drift["per_h_hi"] > 0
    ]


def _grouped(points: Sequence[Row], texts: Callable[[Row], Iterable[str]], axis: Axis) -> list[str]:
    """One line a text, with the places, levels and trials that have it."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for p in points:
        for text in dict.fromkeys(texts(p)):
            groups[words(text), _to_do(text, p)].append(p)
    return [
        f"{text} – {_all_or(points, those, axis)}{to_do}" for (text, to_do), those in groups.items()
    ]


def _all_or(points: Sequence[Row], those: Sequence[Row], axis: Axis) -> str:
    if len(those) == len(points) > 1:
        return "all points"
    trials_at: dict[Place, dict[float, list[int]]] = defaultdict(lambda: defaultdict(list))
    for p in those:
        trials_at[p["variant"], p["workload"]][p["level"]].append(p["trial"])
    return "; ".join(_places(trials_at, axis))


def _to_do(text: str, point: Row) -> str:
    """What to do about a point that was measured here; another tool's has no settings of ours."""
    advice = None if point["source"] else remedy(text)
    return f". To do: {advice}" if advice else ""


def _invalid_reasons(point: Row) -> Sequence[str]:
    return () if point["valid"] else point["invalid_reasons"] or ("no reason was recorded",)


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
    single = [(comparison_name(v, campaign), v["workload"]) for v in judged if v["n_trials"] == 1]
    text = f"one trial gives no interval, so there is no verdict; {more}"
    return [f"{names(single)}: {text}"] if single else []


def _session_problems(sessions: Sequence[Row], points: Sequence[Row]) -> list[str]:
    items = []
    measured = {p["session_id"] for p in points}
    versions: dict[str, set[str]] = defaultdict(set)
    for s in sessions:
        if s["engine"] and s["engine_version"]:
            versions[s["engine"]].add(s["engine_version"])
        if s["session_id"] not in measured:
            never = "" if s["ready_after_s"] else "the server never became ready, and "
            items.append(f"{session_name(s)}: {never}no point was measured")
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
