"""What the rules need from Python: parameters outside the rerun triggers, and clean signals."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

from crossover import engines, layout
from crossover.campaign import PROTOCOL, Campaign, Session, missing_in_shell
from crossover.digests import canonical, digest
from crossover.errors import CrossoverError, DeviceBusyError
from crossover.refine import prospect
from crossover.server import debts, process_table, processes, session
from crossover.server.session import Handle

_SCRIPTS = Path(__file__).resolve().parents[1]


class Untracked:
    """A parameter that triggers no rerun: Snakemake records built-in types only.

    A result's path says what it depends on. In a shell command it stands as it is if it is text, else as canonical JSON.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return self.value
        return canonical(asdict(self.value) if is_dataclass(self.value) else self.value)


class Script(Untracked):
    """The shell command that runs a script of this workflow."""

    python: ClassVar[str] = sys.executable

    def __str__(self) -> str:
        return shlex.join([self.python, str(_SCRIPTS / self.value)])


# ------------------------------------------------------------------ what a job is told


def server_spec(campaign: Campaign, session: Session) -> dict[str, Any]:
    """What `start_server` and `check_health` need to know of a session."""
    return {
        "variant": asdict(campaign.variants[session.variant]),
        "facts": {
            "campaign": campaign.name,
            **asdict(session),
            "server_digest": campaign.server_digests[session.variant],
        },
    }


def point_spec(
    campaign: Campaign, session: Session, workload: str, level: float, *, long_window: bool
) -> dict[str, Any]:
    """What `measure_point` needs to know of a point."""
    load, digests = campaign.load, campaign.point_digests
    if long_window:
        load, digests = load.with_long_windows, campaign.long_point_digests
    return {
        "where": {
            "campaign": campaign.name,
            "variant": session.variant,
            "workload": workload,
            "trial": session.trial,
            campaign.load.axis.name: level,
        },
        "digests": {
            "server_digest": campaign.server_digests[session.variant],
            "point_digest": digests[workload],
            "protocol": PROTOCOL,
        },
        "variant": asdict(campaign.variants[session.variant]),
        "workload": asdict(campaign.workloads[workload]),
        "load": asdict(load),
        "seed": campaign.analysis.seed,
    }


# ------------------------------------------------------------------ before the first job


def config_source(files: Iterable[str | Path]) -> str:
    """The campaign file's name for messages, relative where it is below this folder."""
    here = Path.cwd()
    names = [str(p.relative_to(here) if p.is_relative_to(here) else p) for p in map(Path, files)]
    return ", ".join(names) or "--config"


def missing_model(campaign: Campaign, made_by_rule: str) -> list[str]:
    """A sentence on a model path where nothing is and which no rule makes, if it is needed.

    A plan may be asked for on another machine than the one that has the weights.
    """
    path = campaign.model.path
    if not path or Path(path).exists() or re.fullmatch(made_by_rule, path) or not _due(campaign):
        return []
    return [
        f"model.path: there is no {path!r} here; give a file or folder that exists, or leave "
        "path out where the engine resolves the name"
    ]


def check_can_run(campaign: Campaign, missing: Sequence[str], *, here: bool) -> None:
    """Refuse a run whose servers cannot start, before anything is started.

    Asks only of variants that have something to measure: a report is rendered without engines.

    Args:
        campaign: what is to be run.
        missing: see `missing_model`.
        here: the servers run on this host, so that their engines must be installed on it.

    Raises:
        CrossoverError: the model is not there, an engine is not installed, a server is behind a
            proxy, or a `${NAME}` is not set; all of them.
    """
    problems = list(missing) if here else []
    for name in _due(campaign) if here else ():
        variant = campaign.variants[name]
        try:
            engines.get(variant.engine).check_installed(variant)
        except CrossoverError as error:
            problems.append(f"variants.{name}: {error}")
    problems += unset(campaign)
    if problems:
        raise CrossoverError("\n".join(problems))


def unset(campaign: Campaign) -> list[str]:
    """A sentence on each `${NAME}` that a variant with something to measure does not find."""
    return [
        f"variants.{name}: ${{{missing}}} is not set in this shell; export {missing} first"
        for name in _due(campaign)
        for missing in missing_in_shell(campaign.variants[name])
    ]


def check_begun(campaign: Campaign) -> None:
    """Refuse a report of what is measured so far where nothing is.

    Raises:
        CrossoverError: the campaign says `only: measured`, and none of its points was.
    """
    if campaign.only_measured and not any(layout.points(campaign)):
        raise CrossoverError(
            f"only: nothing is measured yet of the campaign {campaign.name}, as it is written "
            f"now, below {layout.RESULTS}/{campaign.name}; leave `only` out to measure it"
        )


def notes(campaign: Campaign) -> list[str]:
    """What a dry run, or a plan, cannot show as jobs."""
    planned = layout.rounds_of(campaign)
    to_come = [prospect(campaign, planned)] if layout.may_refine(campaign) else []
    return [*unset(campaign), *to_come]


def _due(campaign: Campaign) -> list[str]:
    """Variants that have something to measure, or may have in a further round of refinement."""
    if layout.may_refine(campaign):
        return sorted({name for pair in campaign.comparisons for name in pair})
    return sorted({p.session.variant for p in layout.points(campaign) if not p.is_done})


# ------------------------------------------------------------------ the run and its servers


def become_owner() -> None:
    """Servers that this process or its jobs start end with it."""
    os.environ[processes.OWNER] = processes.identity()


def drop_stale_handles(paths: Iterable[str | Path]) -> None:
    """Remove handles of servers whose run is gone: they have ended, or are ending."""
    for path in map(Path, paths):
        handle = Handle.read(path)
        if handle is None or handle.is_stale():
            path.unlink(missing_ok=True)


def check_no_session_lives(paths: Iterable[str | Path]) -> None:
    """Refuse to start beside sessions of an earlier run, which may go on on other hosts.

    Raises:
        DeviceBusyError: there is one, on the host that it names.
    """
    for handle in filter(None, map(Handle.read, paths)):
        raise DeviceBusyError(
            f"{handle.variant}, trial {handle.trial}, is still being measured on "
            f"{processes.host_of(handle.supervisor)}, by a job of an earlier run: wait until it has "
            "ended, or cancel it, then run the same command again. (A host that crashed is given "
            f"up {session.SILENT_S:.0f} s after the last sign of life in {handle.samples})"
        )


def stop_own_servers(paths: Iterable[str | Path]) -> None:
    """End every server that this run started and did not stop, and what outlived a supervisor.

    Raises:
        ServerError: something is left, see `debts.settle`.
    """
    devices: list[str] = []
    for path in map(Path, paths):
        handle = Handle.read(path)
        if handle is not None and handle.owner == processes.owner():
            processes.stop(handle.supervisor, grace_s=processes.SUPERVISOR_GRACE_S)
            path.unlink(missing_ok=True)
            devices += session.read(handle.record).get("devices", ())
    debts.settle(devices)


def end_on_sigterm(scheduler: type) -> None:
    """Let TERM end this process at once: the jobs that run too, which Snakemake would wait for.

    Snakemake's handler gets a thread of its own. It takes a lock that the interrupted main thread
    may hold while it selects or ends jobs, and would then wait for ever. On a node of a cluster
    there is no `onstart`, so that the handler is wrapped in its class, before there is a scheduler.

    Args:
        scheduler: Snakemake's class, whose `exit_gracefully` handles TERM.
    """
    handler = scheduler.exit_gracefully

    def end(self: Any, *args: Any) -> None:
        handler(self, *args)  # first, so that no further job is started
        for job in process_table.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pid, signal.SIGTERM)

    scheduler.exit_gracefully = lambda *args: threading.Thread(
        target=end, args=args, daemon=True
    ).start()


# ------------------------------------------------------------------ what the analysis depends on


def analysis_settings(campaign: Campaign) -> str:
    """Canonical JSON of the settings of the verdict: an edit re-runs the verdict alone."""
    return canonical(
        {
            "analysis": {**asdict(campaign.analysis), "alpha": campaign.analysis.alpha},
            "refine": asdict(campaign.refine),
            "speculation": {
                name: variant.speculation and asdict(variant.speculation)
                for name, variant in campaign.variants.items()
            },
            "comparisons": campaign.comparisons,
            "baseline": campaign.baseline,
        }
    )


def report_settings(campaign: Campaign) -> str:
    """Digest of the whole campaign: an edit renders the report anew."""
    return digest(asdict(campaign))
