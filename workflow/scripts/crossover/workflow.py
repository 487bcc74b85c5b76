"""What the rules need from Python: parameters outside the rerun triggers, and clean signals."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crossover import engines, layout
from crossover.campaign import PROTOCOL, Campaign, Session, canonical, digest, missing_in_shell
from crossover.errors import CampaignError, CrossoverError, EngineError
from crossover.server import processes
from crossover.server.session import Handle

OWNER = "CROSSOVER_OWNER"
"""Environment variable: identity of the Snakemake process that owns the run's servers."""

_SCRIPTS = Path(__file__).resolve().parents[1]


class Untracked:
    """A parameter that triggers no rerun: Snakemake records built-in types only.

    A result's path says what it depends on. In a shell command it stands as it is if it is text, else as canonical JSON.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return self.value if isinstance(self.value, str) else canonical(self.value)


class Script(Untracked):
    """The shell command that runs a script of this workflow."""

    def __str__(self) -> str:
        return shlex.join([sys.executable, str(_SCRIPTS / self.value)])


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
    campaign: Campaign, session: Session, workload: str, concurrency: int
) -> dict[str, Any]:
    """What `measure_point` needs to know of a point."""
    return {
        "where": {
            "campaign": campaign.name,
            "variant": session.variant,
            "workload": workload,
            "trial": session.trial,
            "concurrency": concurrency,
        },
        "digests": {
            "server_digest": campaign.server_digests[session.variant],
            "point_digest": campaign.point_digests[workload],
            "protocol": PROTOCOL,
        },
        "variant": asdict(campaign.variants[session.variant]),
        "workload": asdict(campaign.workloads[workload]),
        "load": asdict(campaign.load),
        "seed": campaign.analysis.seed,
    }


# ------------------------------------------------------------------ before the first job


def config_source(files: Iterable[str | Path]) -> str:
    """The campaign file's name for messages, relative where it is below this folder."""
    here = Path.cwd()
    names = [str(p.relative_to(here) if p.is_relative_to(here) else p) for p in map(Path, files)]
    return ", ".join(names) or "--config"


def check_model(campaign: Campaign, made_by_rule: str) -> None:
    """Refuse a model path where nothing is and which no rule makes, if it is needed.

    Raises:
        CampaignError: names the path.
    """
    path = campaign.model.path
    if all(point.is_done for point in layout.points(campaign)):
        return
    if path and not Path(path).exists() and not re.fullmatch(made_by_rule, path):
        raise CampaignError(
            f"model.path: there is no {path!r}; give a file or folder that exists, or leave "
            "path out where the engine resolves the name"
        )


def check_can_run(campaign: Campaign) -> None:
    """Refuse a run whose servers cannot start, before anything is started.

    Asks only of variants that have something to measure: a report is rendered without engines.

    Raises:
        CrossoverError: an engine is not installed, or a `${NAME}` is not set; all of them.
    """
    problems = []
    due = {p.session.variant for p in layout.points(campaign) if not p.is_done}
    for name in sorted(due):
        variant = campaign.variants[name]
        try:
            engines.get(variant.engine).check_installed(variant)
        except EngineError as error:
            problems.append(f"variants.{name}: {error}")
        problems += [
            f"variants.{name}: ${{{secret}}} is not set in this shell; export {secret} first"
            for secret in missing_in_shell(variant)
        ]
    if problems:
        raise CrossoverError("\n".join(problems))


# ------------------------------------------------------------------ the run and its servers


def become_owner() -> None:
    """Servers that this process or its jobs start end with it."""
    os.environ[OWNER] = processes.identity()


def owner() -> str:
    """Identity of the Snakemake process that owns this run's servers."""
    return os.environ[OWNER]


def drop_stale_handles(paths: Iterable[str | Path]) -> None:
    """Remove handles of servers whose run is gone: they have ended, or are ending."""
    for path in map(Path, paths):
        handle = Handle.read(path)
        if handle is None or not all(map(processes.is_alive, (handle.supervisor, handle.owner))):
            path.unlink(missing_ok=True)


def stop_own_servers(paths: Iterable[str | Path]) -> None:
    """End every server that this run started and did not stop."""
    for path in map(Path, paths):
        handle = Handle.read(path)
        if handle is not None and handle.owner == owner():
            processes.stop(handle.supervisor, grace_s=processes.SUPERVISOR_GRACE_S)
            path.unlink(missing_ok=True)


def let_sigterm_through() -> None:
    """Run Snakemake's TERM handler in a thread of its own.

    It takes a lock that the interrupted main thread may hold while it selects jobs, and would
    then wait for ever. For `onstart`, which comes after the scheduler has set its handler.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if callable(handler):
        signal.signal(
            signal.SIGTERM,
            lambda *args: threading.Thread(target=handler, args=args, daemon=True).start(),
        )


@contextlib.contextmanager
def logged_to(path: str) -> Iterator[None]:
    """Send what a `script:` prints, and how it failed, to its log, which Snakemake then shows."""
    with (
        open(path, "w", buffering=1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            yield
        except CrossoverError as error:
            print(f"crossover: {error}", file=log)
            raise SystemExit(1) from None
        except Exception:
            traceback.print_exc(file=log)
            raise SystemExit(1) from None


# ------------------------------------------------------------------ what the analysis depends on


def analysis_settings(campaign: Campaign) -> str:
    """Canonical JSON of the settings of the verdict: an edit re-runs the verdict alone."""
    return canonical(
        {
            "analysis": asdict(campaign.analysis),
            "comparisons": campaign.comparisons,
            "baseline": campaign.baseline,
        }
    )


def report_settings(campaign: Campaign) -> str:
    """Digest of the whole campaign: an edit renders the report anew."""
    return digest(asdict(campaign))
