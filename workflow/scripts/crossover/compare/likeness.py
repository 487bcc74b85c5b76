"""What two campaigns have in common besides what they compare, and what follows where they do not.

Their tables are all that is known: a campaign file may have changed since. An equal point digest
means equal prompts, lengths, sampling and load settings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from crossover.compare.results import Results
from crossover.parity import MACHINE
from crossover.report.wording import MISSING, commit_words, engine_names, listed, moment
from crossover.rounds import FIRST_TRIAL

LENGTHS_ALIKE = 0.05
"""Relative difference of mean prompt or output lengths up to which the work may be the same."""


@dataclass(frozen=True)
class Fact:
    """One line of the sheet: a value a campaign; `same` is None where one is not known."""

    what: str
    values: list[str]
    same: bool | None


@dataclass(frozen=True)
class Likeness:
    """Whether what the campaigns measured can be set against each other.

    Reasons are sentences; where a list is empty nothing is known against it.
    """

    against_speedups: list[str] = field(default_factory=list)
    against_throughputs: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    against_workloads: dict[str, list[str]] = field(default_factory=dict)
    """workload → why its work is not the same in both"""


def sheet(campaigns: list[Results]) -> list[Fact]:
    """What is known of every campaign, side by side."""
    return [
        _fact(what, [sorted(set(find(c))) for c in campaigns]) for what, find in FACTS.items()
    ] + [
        _fact(
            f"work of {workload}",
            [sorted(_digests(c, workload) - {None}) for c in campaigns],
        )
        for workload in _workloads(campaigns)
    ]


def bounds_agree(earlier: Results, later: Results) -> bool:
    """Whether the bounds of both hold with the same certainty."""
    return all(map(math.isclose, earlier.certainty, later.certainty))


def likeness(earlier: Results, later: Results) -> Likeness:
    """Judge two campaigns by what was recorded of them."""
    found = Likeness()
    pair = (earlier, later)
    if shared := {s["session_id"] for s in earlier.sessions} & {
        s["session_id"] for s in later.sessions
    }:
        found.against_speedups.append(
            f"Both hold the same {len(shared)} sessions: they are not two measurements."
        )
    for what, why in (
        ("model", "The campaigns served different models"),
        ("model file", "The model's file is not the same in both"),
        ("measuring protocol", "The campaigns were measured by different protocols"),
    ):
        values = [sorted(set(FACTS[what](c))) for c in pair]
        if all(values) and values[0] != values[1]:
            found.against_speedups.append(f"{why} ({_against(values)}).")
    machines = [sorted(set(FACTS["hardware"](c))) for c in pair]
    if not all(machines):
        found.against_throughputs.append("On which hardware one of them ran is not known.")
    elif machines[0] != machines[1]:
        found.against_throughputs.append(
            "They ran on different hardware: a speed-up is a ratio within its own machine and can "
            "still be read against the other, tokens per second cannot."
        )
    else:
        found.cautions.append(
            "The campaigns were not interleaved: whatever changed between their dates besides "
            "what was meant to is in every difference of tokens per second."
        )
    if not bounds_agree(earlier, later):
        held = _against([[f"{c.certainty[1]:g}"] for c in pair])
        found.cautions.append(
            f"Their bounds hold at different confidence ({held}), so changes have none."
        )
    for workload in _workloads(pair):
        _work(workload, pair, found)
    return found


# ------------------------------------------------------------------ facts


def _column(name: str) -> Callable[[Results], Iterable[str]]:
    return lambda c: (str(s[name]) for s in c.sessions if s[name] is not None)


def _hardware(campaign: Results) -> Iterable[str]:
    for session in campaign.sessions:
        known = json.loads(session["hardware"] or "{}")
        if kept := {k: known[k] for k in MACHINE if known.get(k)}:
            yield "; ".join(
                f"{k} {v if isinstance(v, str) else listed(v)}" for k, v in kept.items()
            )


def _engine(campaign: Results) -> Iterable[str]:
    return engine_names(campaign.sessions)


def _days(campaign: Results) -> Iterable[str]:
    return (moment(s["started_at"])[:10] for s in campaign.sessions if s["started_at"] is not None)


def _trials(campaign: Results) -> Iterable[str]:
    return [str(len({p["trial"] for p in campaign.points}))]


def _speculation(campaign: Results) -> Iterable[str]:
    for s in campaign.sessions:
        if s["speculation_method"]:
            drafts = (
                "" if s["drafted_tokens"] is None else f", {s['drafted_tokens']} drafted tokens"
            )
            yield f"{s['variant']}: {s['speculation_method']}{drafts}"


def _setting(name: str) -> Callable[[Results], Iterable[str]]:
    return lambda c: [str(c.settings[name])]


FACTS: dict[str, Callable[[Results], Iterable[str]]] = {
    "engine": _engine,
    "model": _column("model_name"),
    "model file": _column("model_fingerprint"),
    "speculation": _speculation,
    "hardware": _hardware,
    "host": _column("host"),
    "measured on": _days,
    "trials": _trials,
    "measuring protocol": _column("protocol"),
    "measuring code": lambda c: map(commit_words, _column("commit")(c)),
    "metric": _setting("metric"),
    "margin": _setting("margin"),
    "confidence": _setting("confidence"),
}


def _fact(what: str, values: list[list[str]]) -> Fact:
    known = all(values)
    return Fact(
        what,
        [listed(v) for v in values],
        all(v == values[0] for v in values) if known else None,
    )


def _against(values: list[list[Any]]) -> str:
    return " against ".join(listed(v) for v in values)


# ------------------------------------------------------------------ the work


def _workloads(campaigns: Iterable[Results]) -> list[str]:
    """The workloads' names that all campaigns have, in the first one's order."""
    names = [dict.fromkeys(p["workload"] for p in c.points) for c in campaigns]
    return [name for name in names[0] if all(name in other for other in names)]


def _digests(campaign: Results, workload: str) -> set[str | None]:
    """Of the campaign's own trials: rounds of refinement repeat their work, at times for longer."""
    return {
        p["point_digest"]
        for p in campaign.points
        if p["workload"] == workload and p["trial"] < FIRST_TRIAL
    }


def _work(workload: str, pair: tuple[Results, Results], found: Likeness) -> None:
    """Equal digests: the same work. Else lengths decide whether it can have been."""
    digests = [_digests(c, workload) for c in pair]
    if digests[0] == digests[1] != set() and None not in digests[0]:
        return
    for column, what in (("prompt_tokens_mean", "prompts"), ("output_tokens_mean", "answers")):
        a, b = (_mean(c, workload, column) for c in pair)
        if a and b and abs(a - b) > LENGTHS_ALIKE * max(a, b):
            found.against_workloads.setdefault(workload, []).append(
                f"Only the name of {workload} is the same in both: its {what} have "
                f"{a:.0f} tokens on average against {b:.0f}."
            )
    if workload in found.against_workloads:
        return
    found.cautions.append(
        f"Whether {workload} is the same work in both is not certain: prompts, sampling or load "
        "settings differ or are not recorded, though nothing recorded of its lengths differs."
    )


def _mean(campaign: Results, workload: str, column: str) -> float | None:
    known = [p[column] for p in campaign.points_of(workload=workload) if p[column] is not None]
    return sum(known) / len(known) if known else None


SAMENESS = {True: "same", False: "differs", None: f"{MISSING} (not known of all)"}
