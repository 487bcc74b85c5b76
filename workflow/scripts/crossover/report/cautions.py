"""What limits the results, in words."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossover.reasons import words
from crossover.report.wording import Row, comparison_name, listed, session_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
) -> list[Caution]:
    """The cautions that there are; an empty list means none of them applies."""
    found = [
        Caution("Not measured", _not_measured(campaign, points), serious=True),
        Caution("Limits of the verdicts", _limits(campaign, judged)),
        Caution("Invalid points, left out of the verdicts", _invalid(levels), serious=True),
        Caution("Failed requests", _failed(levels)),
        Caution("Too few trials", _few_trials(campaign, judged)),
        Caution("Remarks on points", _grouped(points, lambda p: p["warnings"] or ())),
        Caution("Sessions", _session_problems(sessions), serious=True),
    ]
    return [w for w in found if w.items]


def _not_measured(campaign: Campaign, points: Sequence[Row]) -> list[str]:
    done = {(p["variant"], p["workload"], p["concurrency"], p["trial"]) for p in points}
    items = []
    for variant in campaign.variants:
        for workload in campaign.workloads:
            missing = {
                c: [
                    t
                    for t in range(1, campaign.load.trials + 1)
                    if (variant, workload, c, t) not in done
                ]
                for c in campaign.load.concurrency
            }
            if any(missing.values()):
                items.append(f"{variant}, {workload}: {_where(missing)}")
    return items


def _where(trials_at: Mapping[int, Sequence[int]]) -> str:
    """`concurrency 1, 4 (trials 1, 2); concurrency 16 (trial 2)`."""
    levels: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for concurrency, trials in sorted(trials_at.items()):
        if trials:
            levels[tuple(sorted(trials))].append(concurrency)
    return "; ".join(
        f"concurrency {listed(at)} (trial{'' if len(trials) == 1 else 's'} {listed(trials)})"
        for trials, at in levels.items()
    )


def _limits(campaign: Campaign, judged: Sequence[Row]) -> list[str]:
    items = []
    for verdict in judged:
        where = f"{comparison_name(verdict, campaign)}, {verdict['workload']}: "
        items += [where + caveat["text"] for caveat in verdict["caveats"]]
        for arm, feasible in verdict["feasible_max"].items():
            if feasible is not None and feasible < max(campaign.load.concurrency):
                items.append(
                    f"{where}the highest valid level of {verdict[arm]} is concurrency {feasible}"
                )
    return items


def _grouped(points: Sequence[Row], texts: Callable[[Row], Iterable[str]]) -> list[str]:
    """One line a (variant, workload, text) with its levels and trials."""
    groups: dict[tuple[str, str, str], dict[int, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for p in points:
        for text in texts(p):
            groups[p["variant"], p["workload"], text][p["concurrency"]].append(p["trial"])
    return [
        f"{variant}, {workload}: {words(text)} – {_where(at)}"
        for (variant, workload, text), at in groups.items()
    ]


def _invalid(levels: Sequence[Level]) -> list[str]:
    return _grouped(
        [p for level in levels for p in level.invalid],
        lambda p: p["invalid_reasons"] or ("no reason was recorded",),
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
    return [
        f"{comparison_name(v, campaign)}, {v['workload']}: one trial gives no interval, so there is no "
        "verdict; set load.trials to 3 or more"
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
