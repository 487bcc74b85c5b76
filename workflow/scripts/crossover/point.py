"""One point from a live session to its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossover import engines
from crossover.campaign import (
    Load,
    Variant,
    Workload,
    from_shell,
)
from crossover.errors import MeasurementError, ServerDiedError, ServerHungError
from crossover.files import write_json
from crossover.measure import measure_point
from crossover.progress import Terminal, duration
from crossover.prompt_sets import PromptSet, prompt_set
from crossover.revision import commit
from crossover.server import processes, session
from crossover.server.ending import ended
from crossover.server.session import Handle
from crossover.standing import Standing

if TYPE_CHECKING:
    from crossover.load.client import Progress


def measure_to(
    folder: Path, spec: dict[str, Any], health: str, owner: str, terminal: Terminal
) -> dict[str, Any]:
    """Measure a point and write its files, `point.json` last; returns its row.

    Args:
        folder: the point's folder.
        spec: see `crossover.workflow.point_spec`.
        health: health.json of the session.
        owner: identity of the run that this job belongs to.

    Raises:
        MeasurementError: the session is not of this run.
        ServerDiedError: the server is gone, before or in mid-measurement, or hung and was ended.
    """
    handle = Handle.read(health)
    variant, where = Variant.from_dict(spec["variant"]), spec["where"]
    if handle is None or handle.owner != owner:
        raise MeasurementError(
            f"{where['variant']} is not up in this run: ask for the report or for a session's "
            "stopped.json, which bring its server up, not for a point alone"
        )
    _check_path(folder, spec["digests"])
    if how := ended(handle):
        raise ServerDiedError(how)
    load = Load.from_dict(spec["load"])
    workload = Workload(**spec["workload"])
    title = (
        f"{where['variant']} trial {where['trial']} of {load.trials}, {where['workload']}, "
        f"{load.axis.at(where[load.axis.name])}"
    )
    standing = Standing.read(_standing_file(folder))
    try:
        measured = measure_point(
            where={**where, "session_id": handle.session_id},
            base_url=handle.base_url,
            engine=engines.get(variant.engine),
            workload=workload,
            model=variant.model,
            load=load,
            seed=spec["seed"],
            prompts=_prompts(workload),
            samples=lambda start_s, end_s: session.samples(handle.samples, start_s, end_s),
            on_progress=lambda progress: terminal.show(_line(where, load, standing, progress)),
            server_alive=lambda: ended(handle),
            api_key=from_shell(variant.api_key) if variant.api_key else None,
        )
    except ServerHungError as error:
        raise ServerDiedError(_end_hung(handle, error)) from None
    if not processes.is_alive(owner):
        raise MeasurementError("the run that this job belongs to is gone: nothing is written")
    row = {**measured.point, **spec["digests"], "commit": commit()}
    measured.write_tables(folder)
    write_json(row, folder / "point.json")
    terminal.say(_result(title, row))
    return row


def _check_path(folder: Path, digests: dict[str, Any]) -> None:
    """Refuse to write under a path that stands for other settings than today's."""
    if folder.parent.name != digests["point_digest"] or (
        folder.parents[3].name != digests["server_digest"]
    ):
        raise MeasurementError(
            f"{folder} holds a point of other settings than the campaign's; "
            "ask for the report, not for this file"
        )


def _prompts(workload: Workload) -> PromptSet:
    prompts = prompt_set(workload.prompts)
    if prompts.sha256 != workload.prompts_sha256:
        raise MeasurementError(
            f"the prompts of {workload.name} were edited since this run began; "
            "run the same command again"
        )
    return prompts


def _end_hung(handle: Handle, error: ServerHungError) -> str:
    """End a server that hangs, so that no other point waits for it; returns what to tell."""
    session.append(handle.record, "hung", hung=f"it hung and was ended: {error}")
    processes.stop(handle.supervisor, grace_s=processes.SUPERVISOR_GRACE_S)
    return ended(handle)


def _standing_file(folder: Path) -> Path:
    """results/<campaign>/standing.json, seen from a point's folder."""
    return folder.parents[5] / "standing.json"


def _line(where: dict[str, Any], load: Load, standing: Standing | None, progress: Progress) -> str:
    """One line of at most 80 columns for names of usual length, what matters most first."""
    rate = "–" if progress.tokens_per_s is None else f"{progress.tokens_per_s:.0f}"
    level = where[load.axis.name]
    parts = [
        f"{where['variant']} trial {where['trial']}/{load.trials}, {where['workload']} "
        + (f"C={level}" if load.arrivals is None else f"{level} req/s"),
        f"{rate} tok/s",
        f"{progress.failed} errors",
        f"{progress.phase} {progress.elapsed_s:.0f} s",
    ]
    if standing is not None:
        parts.insert(0, f"{min(standing.done + 1, standing.points)}/{standing.points}")
        if standing.eta_s is not None:
            parts.append(f"ETA {duration(max(0.0, standing.eta_s))}")
    return " · ".join(parts)


def _result(title: str, row: dict[str, Any]) -> str:
    rate = row["output_throughput_tokens_per_s"]
    shown = "no tokens" if rate is None else f"{rate:.1f} tok/s"
    invalid = "" if row["valid"] else f", not valid: {', '.join(row['invalid_reasons'])}"
    return f"{title}: {shown}, {row['completed']} answers, {row['failed']} errors{invalid}"
