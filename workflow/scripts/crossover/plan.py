"""What a campaign will cost: its points, and how long each takes, before it starts."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crossover.campaign import Campaign, Load
from crossover.layout import (
    PlannedPoint,
    may_refine,
    points,
    rounds_of,
    session_folder,
    sessions,
)
from crossover.server import session

START_S = 20.0
"""Assumed start and stop of a server whose start was never measured."""

POINT_OVERHEAD_S = 1.5
"""Assumed seconds of a point's job outside its load."""


class Durations:
    """Seconds a point takes: as measured in other trials, else the least its settings allow."""

    def __init__(self, load: Load, done: Iterable[PlannedPoint]) -> None:
        self.load = load
        self._measured: dict[tuple[str, str, float], list[float]] = defaultdict(list)
        for point in done:
            row = json.loads(Path(point.file).read_text())
            if row["load_s"] is not None:
                self._measured[point.session.variant, point.workload, point.level].append(
                    row["load_s"] - self._longer_s(point)
                )

    def _longer_s(self, point: PlannedPoint) -> float:
        """What a long window takes more than the campaign's own."""
        long_s = self.load.with_long_windows.steady.min_s
        return long_s - self.load.steady.min_s if point.long_window else 0.0

    def of(self, point: PlannedPoint) -> tuple[float, bool]:
        """(seconds, whether they come from an earlier measurement)."""
        besides_s = POINT_OVERHEAD_S + self._longer_s(point)
        for matches in (
            lambda k: k == (point.session.variant, point.workload, point.level),
            lambda k: k[1:] == (point.workload, point.level),
        ):
            found = [s for key, seconds in self._measured.items() if matches(key) for s in seconds]
            if found:
                return statistics.mean(found) + besides_s, True
        least = self.load.ramp_s + self.load.steady.min_s * (
            1
            + self.load.warmup.completions_per_client
            / max(1, self.load.steady.completions_per_client)
        )
        return least + besides_s, False


@dataclass(frozen=True)
class Cost:
    """What is still to be done in a campaign."""

    points: int
    points_done: int
    sessions: int
    seconds: float
    device_seconds: float
    longest_point_s: float
    longest_point: str
    estimated_points: int
    estimated_starts: int
    refinement_s: float
    """at most, if all rounds and points of refinement that are not planned yet came"""

    def __str__(self) -> str:
        lines = [
            f"points to measure:  {self.points} ({self.points_done} are there already)",
            f"sessions to start:  {self.sessions}",
            f"time on one device: {self.seconds / 3600:.2f} h",
            f"device-hours:       {self.device_seconds / 3600:.2f}",
            f"longest point:      {self.longest_point_s:.0f} s ({self.longest_point})",
        ]
        if self.refinement_s:
            lines.append(f"refinement, at most: {self.refinement_s / 3600:.2f} h more")
        if self.estimated_points:
            lines.append(
                f"{self.estimated_points} of these points were never measured: for them the least "
                "time that their windows allow is assumed; slow answers make it longer"
            )
        if self.estimated_starts:
            lines.append(
                f"{self.estimated_starts} of these starts are of servers that never started here: "
                f"{START_S:.0f} s each is assumed"
            )
        return "\n".join(lines)


def cost(campaign: Campaign) -> Cost:
    """What running the campaign now would take, from earlier points and starts where there are."""
    everything = list(points(campaign))
    due = [p for p in everything if not p.is_done]
    durations = Durations(campaign.load, (p for p in everything if p.is_done))
    starts = start_seconds(campaign)
    seconds = {p: durations.of(p) for p in due}
    by_session = {p.session: starts.get(p.session.variant, START_S) for p in due}
    for point in due:
        by_session[point.session] += seconds[point][0]
    longest = max(due, key=lambda p: seconds[p][0], default=None)
    return Cost(
        points=len(due),
        points_done=len(everything) - len(due),
        sessions=len(by_session),
        seconds=sum(by_session.values()),
        device_seconds=sum(
            duration * len(campaign.variants[s.variant].devices)
            for s, duration in by_session.items()
        ),
        longest_point_s=seconds[longest][0] if longest else 0.0,
        longest_point=(
            f"{longest.session.variant}, {longest.workload}, {campaign.load.axis.at(longest.level)}"
            if longest
            else "none"
        ),
        estimated_points=sum(not measured for _, measured in seconds.values()),
        estimated_starts=sum(s.variant not in starts for s in by_session),
        refinement_s=_refinement_s(campaign, everything, durations, starts),
    )


def _refinement_s(
    campaign: Campaign,
    known: Iterable[PlannedPoint],
    durations: Durations,
    starts: Mapping[str, float],
) -> float:
    """Seconds of all rounds that may still be planned, each point like the longest known with a
    long window.
    """
    if not may_refine(campaign):
        return 0.0
    planned = rounds_of(campaign)
    rounds = campaign.refine.rounds - len(planned)
    points = campaign.refine.max_points - sum(len(one.points) for one in planned)
    compared = {name for pair in campaign.comparisons for name in pair}
    longest_s = max(durations.of(replace(p, long_window=True))[0] for p in known)
    return points * longest_s + rounds * sum(starts.get(name, START_S) for name in compared)


def start_seconds(campaign: Campaign) -> dict[str, float]:
    """For each variant that has started before: mean seconds of its start and stop."""
    found = defaultdict(list)
    for planned in sessions(campaign):
        for record in (session_folder(campaign, planned) / "sessions").glob("*.jsonl"):
            facts = session.read(record)
            if "ready_after_s" in facts:
                found[planned.variant].append(facts["ready_after_s"] + facts.get("stop_s", 0.0))
    return {name: statistics.mean(seconds) for name, seconds in found.items()}
