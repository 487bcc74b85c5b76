"""What is said at the end of a run that ended early: which sessions failed, why, where to look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

GO_ON = (
    "the run ended early; what it measured is kept, and the same command goes on from there; "
    "a report of what there is: add --config only=measured"
)
"""What every run that ends early says at last, where it still can."""


class FailedSessions:
    """The sessions that failed as jobs of a cluster; of those of this host Snakemake tells itself."""

    def __init__(self) -> None:
        self._sessions: dict[str, list[str]] = {}

    def watch(self, group_job: type) -> None:
        """Keep what the executor says of a group that fails, which Snakemake drops (9.27).

        Args:
            group_job: Snakemake's class, whose `log_error` gets the message.
        """
        log_error = group_job.log_error

        def kept(group: Any, msg: str | None = None, **details: Any) -> None:
            self.add(group.jobs, msg or "", details.get("aux_logs") or ())
            log_error(group, msg, **details)

        group_job.log_error = kept

    def add(self, jobs: Any, message: str, logs: Any) -> None:
        """Keep why a group failed: what its jobs said, and its own log, of which it has the name."""
        # without the call of sbatch, which follows indented, and a hint at the logs named here
        reason = message.split("\n    ")[0].split("For further error details")[0].rstrip(". ")
        said = sorted({words for job in jobs for log in job.log if (words := _said(log))})
        why = "; ".join(filter(None, [reason, *said, *map(_where, logs)]))
        names = {f"{job.wildcards.variant}, trial {job.wildcards.trial}" for job in jobs}
        self._sessions.setdefault(why, []).extend(sorted(names))

    def lines(self) -> list[str]:
        """A sentence for each reason, with the sessions that it ended."""
        return [f"{_some(sessions)}: {why}" for why, sessions in self._sessions.items()]


def _said(log: str | Path) -> str:
    """The first line of an error for the user in a job's log; empty: there is none."""
    try:
        lines = Path(log).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    errors = [line for line in lines if line.startswith("crossover: ")]
    return errors[0].removeprefix("crossover: ").rstrip(":") if errors else ""


def _where(log: str | Path) -> str:
    here = Path.cwd()
    name = Path(log).relative_to(here) if Path(log).is_relative_to(here) else log
    if Path(log).exists():
        return f"see {name}"
    return f"it wrote no {name}: does its node see this folder under the same path?"


def _some(names: list[str], most: int = 4) -> str:
    rest = len(names) - most
    return "; ".join(names[:most]) + (f"; and {rest} more" if rest > 0 else "")
