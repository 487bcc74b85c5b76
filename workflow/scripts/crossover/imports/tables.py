"""From runs to the rows of a campaign's tables.

One cell (variant, workload, concurrency) of one trial is one run; the runs of a variant with one
trial number count as one session, since the files do not say when a server was started.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from crossover.digests import digest
from crossover.imports import arms
from crossover.imports.files import Reading, read_files
from crossover.imports.names import choose_baseline
from crossover.imports.run import Run
from crossover.records import POINTS, REQUESTS, SESSIONS, to_table, write_parquet

WORKLOAD = "imported"
"""Name of a workload of which the files say nothing."""


def import_files(
    files: Sequence[str],
    *,
    campaign: str,
    baseline: str | None,
    imports: str,
    points: str,
    requests: str,
    sessions: str,
) -> None:
    """Write the tables of records.POINTS, REQUESTS and SESSIONS, and print what was left out.

    Args:
        files: the files to read.
        campaign: name of the campaign.
        baseline: the variant that the others are compared with; None: by its name.
        imports: what the user named, for messages.
        points, requests, sessions: the Parquet files to write.

    Raises:
        ResultFileError: see `read_files` and `choose_baseline`.
    """
    reading = read_files(files)
    print(reading)
    chosen = choose_baseline([run.variant for run in reading.runs], baseline, imports)
    found = rows(reading, campaign=campaign, baseline=chosen)
    write_parquet(to_table(found.points, POINTS), points)
    write_parquet(to_table(found.requests, REQUESTS), requests)
    write_parquet(to_table(found.sessions, SESSIONS), sessions)


class Rows(NamedTuple):
    """Rows of records.POINTS, REQUESTS and SESSIONS."""

    points: list[dict[str, Any]]
    requests: list[dict[str, Any]]
    sessions: list[dict[str, Any]]


@dataclass(frozen=True)
class _Placed:
    """A run with its place in the campaign."""

    run: Run
    workload: str
    trial: int

    @property
    def cell(self) -> tuple[str, str, int]:
        return (self.run.variant, self.workload, self.run.concurrency)

    @property
    def session(self) -> tuple[str, int]:
        return (self.run.variant, self.trial)


def rows(reading: Reading, *, campaign: str, baseline: str) -> Rows:
    """All rows, the baseline's first, then in the order of the files.

    Args:
        reading: the runs; every point remarks on what was left out.
        campaign: name of the campaign.
        baseline: the variant that the others are compared with.
    """
    of_variant = _by_variant(reading.runs, baseline)
    workloads = _workloads(of_variant, baseline)
    remarks = {
        variant: _remarks(variant, of_variant, workloads, baseline) for variant in of_variant
    }
    placed = [
        one
        for variant, mine in of_variant.items()
        for one in _with_trials([(run, workloads[variant][_workload(run)]) for run in mine])
    ]
    everywhere = [*reading.remarks, *_restarts(placed)]
    repeats = _repeats_apart(placed)
    points, requests = [], []
    for one in placed:
        where = {
            "campaign": campaign,
            "variant": one.run.variant,
            "workload": one.workload,
            "trial": one.trial,
            "concurrency": one.run.concurrency,
            "session_id": _session_id(*one.session),
        }
        warnings = [
            *everywhere,
            _not_stated(one.run),
            *remarks[one.run.variant],
            *one.run.warnings,
            *["repeats_differ"] * (one.cell in repeats),
        ]
        points.append(
            where
            | dict(one.run.figures)
            | {
                "source": one.run.source,
                "valid": not one.run.invalid_reasons,
                "invalid_reasons": list(one.run.invalid_reasons),
                "warnings": warnings,
            }
        )
        requests += [where | dict(request) for request in one.run.requests]
    return Rows(points, requests, _sessions(placed, campaign))


def _by_variant(runs: Iterable[Run], baseline: str) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {baseline: []}
    for run in runs:
        found.setdefault(run.variant, []).append(run)
    return found


# ------------------------------------------------------------------ workloads


def _workload(run: Run) -> str:
    """A name for what the file says was asked; parameters in its order."""
    said = "-".join(str(value) for value in run.asked.values())
    name = re.sub(r"[^A-Za-z0-9._]+", "-", said).strip("-._")
    return (f"{name[:48]}-{digest(said)}" if len(name) > 60 else name) or WORKLOAD


def _workloads(of_variant: Mapping[str, list[Run]], baseline: str) -> dict[str, dict[str, str]]:
    """For each variant: its files' workloads, and under which name each is compared.

    A variant whose only workload the baseline never ran is compared with the baseline's only one.
    """
    own = {variant: dict.fromkeys(map(_workload, runs)) for variant, runs in of_variant.items()}
    reference = list(own[baseline])
    return {
        variant: {
            name: reference[0] if len(names) == len(reference) == 1 else name for name in names
        }
        for variant, names in own.items()
    }


# ------------------------------------------------------------------ trials and sessions


def _with_trials(runs: Sequence[tuple[Run, str]]) -> list[_Placed]:
    """Runs with trial numbers: the files' own where they tell a cell's runs apart, else 1, 2, …"""
    cells: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run, workload in runs:
        cells[workload, run.concurrency].append(run)
    return [
        _Placed(run, workload, trial)
        for (workload, _), of_cell in cells.items()
        for run, trial in zip(of_cell, _trials(of_cell), strict=True)
    ]


def _trials(cell: Sequence[Run]) -> Iterable[int]:
    stated = [run.trial for run in cell]
    distinct = None not in stated and len(set(stated)) == len(stated)
    return stated if distinct and min(stated) >= 1 else range(1, len(cell) + 1)


def _session_id(variant: str, trial: int) -> str:
    return f"{variant}-{trial}"


def _sessions(placed: Sequence[_Placed], campaign: str) -> list[dict[str, Any]]:
    """One row a (variant, trial). Dates count only where every file has one."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    dates = [one.run.figures.get("started_at") for one in placed]
    for one in placed:
        row = found.setdefault(
            one.session,
            {
                "campaign": campaign,
                "variant": one.run.variant,
                "trial": one.trial,
                "session_id": _session_id(*one.session),
                "started_at": None,
            },
        )
        for key, value in one.run.server.items():
            row.setdefault(key, value)
        if None not in dates:
            started = one.run.figures["started_at"]
            row["started_at"] = min(started, row["started_at"] or started)
    return [{**row, "rank": rank} for rank, row in enumerate(found.values())]


# ------------------------------------------------------------------ remarks


def _restarts(placed: Iterable[_Placed]) -> list[str]:
    return ["restarts_unknown"] if any(one.trial > 1 for one in placed) else []


def _not_stated(run: Run) -> str:
    lacking = {
        "model": run.server.get("model_name"),
        "date": run.figures.get("started_at"),
        "output lengths": run.figures.get("output_tokens_mean"),
        "failures": run.figures.get("failed"),
        "the server's description": run.server.get("description"),
        "its queue and cache": None,
    }
    return "not_stated: " + ", ".join(name for name, value in lacking.items() if value is None)


def _remarks(
    variant: str,
    of_variant: Mapping[str, list[Run]],
    workloads: Mapping[str, Mapping[str, str]],
    baseline: str,
) -> list[str]:
    """What differs between a variant and the baseline."""
    renamed = [
        f"{own} instead of {name}" for own, name in workloads[variant].items() if own != name
    ]
    return [
        *([f"workload_differs: {'; '.join(renamed)}"] if renamed else []),
        *arms.differences(of_variant[baseline], of_variant[variant]),
    ]


def _repeats_apart(placed: Iterable[_Placed]) -> set[tuple[str, str, int]]:
    """Cells whose repeats have other mean lengths: they may be no repeats."""
    lengths: dict[tuple[tuple[str, str, int], str], list[float]] = defaultdict(list)
    for one in placed:
        for column in ("prompt_tokens_mean", "output_tokens_mean"):
            if column in one.run.figures:
                lengths[one.cell, column].append(one.run.figures[column])
    return {cell for (cell, _), found in lengths.items() if not arms.alike(min(found), max(found))}
