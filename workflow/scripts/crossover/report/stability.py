"""The sessions in order of time, and whether the results drifted over them."""

from __future__ import annotations

import math
import signal
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from crossover.report.figure import Figure, Table, figure_of
from crossover.report.figures import THROUGHPUT
from crossover.report.wording import (
    MISSING,
    Row,
    comparison_name,
    counted,
    engine_name,
    moment,
    number,
    percent,
    title_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossover.axis import Axis
    from crossover.campaign import Campaign
    from crossover.report.levels import Level


def drift_figure(
    levels: Sequence[Level],
    sessions: Sequence[Row],
    judged: Sequence[Row],
    campaign: Campaign,
    axis: Axis,
) -> Figure:
    """Each session's throughput against the mean of its variant at the same levels, over time."""
    started = {s["session_id"]: s["started_at"] for s in sessions if s["started_at"] is not None}
    begin = min(started.values(), default=0.0)
    rows = [
        {
            "variant": variant,
            "hours": (started[session] - begin) / 3600,
            "trial": trial,
            "value": 100 * math.expm1(sum(logs) / len(logs)),
            "said": f"{percent(math.expm1(sum(logs) / len(logs)))} over {counted(len(logs), 'point')}",
        }
        for (variant, session, trial), logs in _residuals(levels).items()
        if session in started
    ]
    said = [s for v in judged if (s := _drift_words(v, campaign))]
    none = "No change with time can be told: it takes two sessions or more of each variant."
    return figure_of(
        "drift",
        "campaign",
        levels,
        axis=axis,
        slug="drift",
        title="Sessions in order of time",
        note=(
            "Each symbol is one life of a server: how far its throughput lies from the mean of its "
            "variant at the same levels. A slope would be drift, as from heat or a busy host."
        ),
        finding=" ".join(said) if said else none,
        variants=[
            v
            for v in dict.fromkeys(n.variant for n in levels)
            if any(r["variant"] == v for r in rows)
        ],
        means=sorted(rows, key=lambda r: r["hours"]),
    )


def _residuals(levels: Sequence[Level]) -> dict[tuple[str, str, int], list[float]]:
    """By variant, session and trial: ln of throughput less the mean of its level, where repeated."""
    found: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for n in levels:
        known = [(p, math.log(p[THROUGHPUT])) for p in n.valid if p[THROUGHPUT]]
        if len(known) < 2:
            continue
        mean = sum(log for _, log in known) / len(known)
        for p, log in known:
            found[n.variant, p["session_id"], p["trial"]].append(log - mean)
    return found


def _drift_words(verdict: Row, campaign: Campaign) -> str | None:
    drift = verdict["drift"]
    if drift is None:
        return None
    lo, hi = (math.expm1(drift[end] * drift["span_h"]) for end in ("per_h_lo", "per_h_hi"))
    told = "" if lo * hi > 0 else ", which cannot be told from none"
    return (
        f"{comparison_name(verdict, campaign)}, {verdict['workload']}: {title_of(verdict['metric'])} "
        f"{percent(drift['over_span'])} over {_span(drift['span_h'])} and "
        f"{counted(drift['launches'], 'session')} ({campaign.analysis.confidence * 100:g} % interval "
        f"{percent(lo)} to {percent(hi)}){told}."
    )


def _span(hours: float) -> str:
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:.1f} h"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def session_table(sessions: Sequence[Row], points: Sequence[Row], campaign: Campaign) -> Table:
    """Every life of a server, or what counts as one."""
    measured: Counter[Any] = Counter(p["session_id"] for p in points)

    def end(s: Row) -> str:
        text = s["stop_reason"] or MISSING
        if (status := s["exit_code"]) is not None:
            text += f", exit status {status}" if status >= 0 else f", ended by {_signal(-status)}"
        return text + (", killed" if s["killed"] else "")

    return Table(
        caption="The imported runs of one trial of a variant count as one life of a server."
        if campaign.imports
        else "Every life of a server, in order of time.",
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
