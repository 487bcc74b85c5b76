"""One run of a load tool at one level, in the project's own terms, and how figures are read.

Missing is None, never 0: the non-standard JSON tokens `NaN` and `Infinity` are missing too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

HELD = 0.95
"""Mean share of a level's requests in flight below which a run is remarked on."""

ENOUGH_WAVES = 4
"""Requests per client below which ramp and tail are a large part of a run."""


@dataclass(frozen=True)
class Run:
    """What a file says of one run.

    `figures` are columns of records.POINTS, `server` of records.SESSIONS; `asked` says what was
    asked (dataset, lengths), `settings` what else may differ between two servers. A run without
    `concurrency` is no level: `no_level` says why.
    """

    source: str
    tool: str
    variant: str
    concurrency: int | None
    figures: Mapping[str, Any]
    no_level: str | None = None
    trial: int | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    invalid_reasons: tuple[str, ...] = ()
    requests: tuple[Mapping[str, Any], ...] = ()
    """rows of records.REQUESTS, without the columns that say where they belong"""


# ------------------------------------------------------------------ figures


def number(value: Any) -> float | None:
    """A finite number, also where it is written as text; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def numbers(value: Any) -> list[float] | None:
    """A list of finite numbers; None for anything else."""
    found = [number(item) for item in value] if isinstance(value, list) else [None]
    return None if None in found else found


def whole(value: Any) -> int | None:
    """A whole number; None for anything else."""
    found = number(value)
    return int(found) if found is not None and found.is_integer() else None


def positive(value: Any) -> float | None:
    """A number above 0; load tools write 0 where they have measured nothing."""
    found = number(value)
    return found if found is not None and found > 0 else None


def seconds(milliseconds: Any) -> float | None:
    """Milliseconds as seconds; 0 is missing."""
    found = positive(milliseconds)
    return None if found is None else found / 1000


def per(total: Any, count: Any) -> float | None:
    """`total` / `count`; None where either is missing or the count is 0."""
    total, count = number(total), positive(count)
    return None if total is None or count is None else total / count


def text(value: Any) -> str | None:
    """Text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value.strip() else None


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that are not None."""
    return {key: value for key, value in values.items() if value is not None}


def unix_s(moment: Any, *formats: str) -> float | None:
    """A date as Unix seconds; without a zone it counts as UTC. None: not written so."""
    for form in formats or (None,):
        try:
            found = datetime.strptime(moment, form) if form else datetime.fromisoformat(moment)
        except (TypeError, ValueError):
            continue
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return None


# ------------------------------------------------------------------ levels


@dataclass(frozen=True)
class Level:
    """Whether a run's load was a level; `no_level` says why not."""

    concurrency: int | None
    no_level: str | None = None
    rate_limited: bool = False


def level(cap: Any, request_rate: Any) -> Level:
    """The level of a run with at most `cap` requests in flight that arrive at `request_rate`.

    A cap alone is a closed loop. A rate alone is an open loop, whose concurrency is a result and
    no setting; neither is all requests at once.
    """
    concurrency, rate = whole(cap), positive(request_rate)
    if concurrency is not None and concurrency >= 1:
        return Level(concurrency, rate_limited=rate is not None)
    if rate is not None:
        return Level(None, f"open loop, {rate:g} requests/s without a cap on requests in flight")
    return Level(None, "all requests at once, without a cap on requests in flight")


def run_at(
    of: Level,
    figures: Mapping[str, Any],
    *,
    warnings: Iterable[str] = (),
    invalid_reasons: Iterable[str] = (),
    **told: Any,
) -> Run:
    """A run at a level, with what its load and its failures say of it besides.

    Args:
        of: the level.
        figures: columns of records.POINTS.
        warnings, invalid_reasons: what the format knows besides.
        told: the run's other fields.
    """
    of_load, not_held = _load_remarks(
        of,
        achieved=figures.get("achieved_concurrency"),
        requests=figures.get("requests", figures.get("completed")),
    )
    failures = _failures(figures.get("completed"), figures.get("failed"))
    return Run(
        concurrency=of.concurrency,
        no_level=of.no_level,
        figures=figures,
        warnings=(*of_load, *warnings),
        invalid_reasons=(*failures, *not_held, *invalid_reasons),
        **told,
    )


def _load_remarks(
    of: Level, *, achieved: float | None, requests: float | None
) -> tuple[list[str], list[str]]:
    """(warnings, reasons why the run is invalid) about how its load was kept up.

    Args:
        of: the run's level.
        achieved: mean requests in flight.
        requests: requests sent.
    """
    if of.concurrency is None:
        return [], []
    warnings = ["whole_run"]
    held = None if achieved is None else achieved >= HELD * of.concurrency
    if requests is not None and requests < ENOUGH_WAVES * of.concurrency:
        warnings.append("few_requests")
    if of.rate_limited:
        return [*warnings, "rate_limited"], [] if held else ["concurrency_not_held"]
    return warnings + ["concurrency_below_level"] * (held is False), []


def _failures(completed: float | None, failed: float | None) -> list[str]:
    """Why a run with so many answers and failures is invalid; empty if it is not."""
    if completed is not None and completed <= 0:
        return ["no_tokens"]
    share = per(failed, (completed or 0) + (failed or 0))
    return ["errors"] if share is not None and share > 0.01 else []
