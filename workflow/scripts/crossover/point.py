"""One point from a live session to its files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossover import engines, provenance
from crossover.campaign import (
    Load,
    Steady,
    Variant,
    Warmup,
    Workload,
    from_shell,
    read_prompts,
)
from crossover.errors import MeasurementError, ServerDiedError
from crossover.measure import measure_point
from crossover.progress import Terminal, duration
from crossover.records import write_json, write_parquet
from crossover.server import processes, session
from crossover.server.session import Handle, log_tail
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
        ServerDiedError: the server is gone, before or in mid-measurement.
    """
    handle = Handle.read(health)
    variant, where = Variant.from_dict(spec["variant"]), spec["where"]
    if handle is None or handle.owner != owner:
        raise MeasurementError(
            f"{where['variant']} is not up in this run: ask for the report or for a session's "
            "stopped.json, which bring its server up, not for a point alone"
        )
    _check_path(folder, spec["digests"])
    alive = _liveness(handle)
    if ended := alive():
        raise ServerDiedError(ended)
    load = dict(spec["load"])
    load |= {"warmup": Warmup(**load["warmup"]), "steady": Steady(**load["steady"])}
    load["concurrency"] = tuple(load["concurrency"])
    workload = Workload(**spec["workload"])
    title = (
        f"{where['variant']} trial {where['trial']} of {load['trials']}, {where['workload']}, "
        f"concurrency {where['concurrency']}"
    )
    standing = Standing.read(_standing_file(folder))
    measured = measure_point(
        where={**where, "session_id": handle.session_id},
        base_url=handle.base_url,
        engine=engines.get(variant.engine),
        workload=workload,
        model=variant.model,
        load=Load(**load),
        seed=spec["seed"],
        prompts=_prompts(workload),
        samples=lambda start_s, end_s: session.samples(handle.samples, start_s, end_s),
        on_progress=lambda progress: terminal.show(
            _line(where, load["trials"], standing, progress)
        ),
        server_alive=alive,
        api_key=from_shell(variant.api_key) if variant.api_key else None,
    )
    if not processes.is_alive(owner):
        raise MeasurementError("the run that this job belongs to is gone: nothing is written")
    row = {**measured.point, **spec["digests"], "commit": provenance.commit()}
    write_parquet(measured.requests, folder / "requests.parquet")
    write_parquet(measured.chunks, folder / "chunks.parquet")
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


def _prompts(workload: Workload) -> list[str]:
    content = Path(workload.prompts).read_bytes()
    if hashlib.sha256(content).hexdigest() != workload.prompts_sha256:
        raise MeasurementError(
            f"{workload.prompts} was edited since this run began; run the same command again"
        )
    return read_prompts(content, workload.prompts)


def _liveness(handle: Handle) -> Callable[[], str | None]:
    def ended() -> str | None:
        if processes.is_alive(handle.supervisor):
            return None
        facts = session.read(handle.record)
        how = facts.get("stop_reason", "the supervisor is gone")
        return (
            f"{handle.variant}: the server is gone ({how}, exit code {facts.get('exit_code')}); "
            f"last lines of {handle.server_log}:\n{log_tail(handle.server_log)}"
        )

    return ended


def _standing_file(folder: Path) -> Path:
    """results/<campaign>/standing.json, seen from a point's folder."""
    return folder.parents[5] / "standing.json"


def _line(where: dict[str, Any], trials: int, standing: Standing | None, progress: Progress) -> str:
    """One line of at most 80 columns for names of usual length, what matters most first."""
    rate = "–" if progress.tokens_per_s is None else f"{progress.tokens_per_s:.0f}"
    parts = [
        f"{where['variant']} trial {where['trial']}/{trials}, {where['workload']} "
        f"C={where['concurrency']}",
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
