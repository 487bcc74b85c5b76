"""Stop a session and hold its supervisor to the proof that nothing is left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from crossover.errors import ServerError
from crossover.files import write_json
from crossover.server import debts, device_memory, process_table, processes, session, supervisor
from crossover.server.ending import ended
from crossover.server.session import Handle

_PROOF = (
    "devices",
    "stop_reason",
    "exit_code",
    "exit_reason",
    "stop_s",
    "killed",
    "processes_left",
    "port_closed",
    "gpu_memory_before_bytes",
    "gpu_memory_after_bytes",
)


def stop(handle_path: str, stopped_path: str) -> dict[str, Any]:
    """End the session of a handle; returns, and writes, what its record says of the end.

    Raises:
        ServerError: the server had ended before it was asked to, or something outlived it.
    """
    handle = Handle.read(handle_path)
    if handle is None:
        raise ServerError(
            f"no handle at {handle_path}: the server is not up; run the same command again"
        )
    processes.stop(handle.supervisor, grace_s=processes.SUPERVISOR_GRACE_S)
    # Snakemake would keep the temp file until the last checkpoint has been run
    Path(handle_path).unlink(missing_ok=True)
    facts = session.read(handle.record)
    if "stopped_at" not in facts:
        debts.settle(facts["devices"])
        raise ServerError(
            f"{handle.variant}: the supervisor of session {handle.session_id} ended without a "
            f"record of the stop; see {supervisor.log_of(handle.server_log)}"
        )
    if problems := _problems(handle, facts):
        raise ServerError(
            f"{handle.variant}: {'; '.join(problems)}; no server is started until that is over"
        )
    if facts["stop_reason"] == "server exited":
        raise ServerError(ended(handle))
    stopped = {
        "session_id": handle.session_id,
        "up_s": time.monotonic() - handle.started_s,
        **{name: facts.get(name) for name in _PROOF},
    }
    write_json(stopped, stopped_path)
    return stopped


def told(stopped: dict[str, Any]) -> str:
    """A proven stop in a sentence."""
    memory = "device memory is back"
    if stopped["gpu_memory_after_bytes"] is None:
        memory = f"device memory not checked ({device_memory.why_unchecked(stopped['devices'])})"
    how = stopped["exit_reason"] or "it is not ours to end"
    return (
        f"session {stopped['session_id']} stopped in {stopped['stop_s']:.2f} s ({how}): no process "
        f"left, port closed, {memory}"
    )


def _problems(handle: Handle, facts: dict[str, Any]) -> list[str]:
    """What outlived the session, in words."""
    found = []
    if left := facts["processes_left"]:
        found.append(f"still running after KILL: {', '.join(map(process_table.describe, left))}")
    if facts["stop_problem"]:
        found.append(facts["stop_problem"])
    if not facts["port_closed"]:
        listener = process_table.listener(handle.port)
        by = (
            process_table.describe(listener.pid)
            if listener
            else "a process that is not visible here"
        )
        found.append(f"port {handle.port} is still answered by {by}")
    return found + facts["gpu_memory_held"]
