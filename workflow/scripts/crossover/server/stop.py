"""Stop a session and hold its supervisor to the proof that nothing is left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from crossover.errors import ServerError
from crossover.records import write_json
from crossover.server import processes, session, supervisor
from crossover.server.session import Handle, log_tail


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
        raise ServerError(
            f"{handle.variant}: the supervisor of session {handle.session_id} ended without a "
            f"record of the stop; see {supervisor.log_of(handle.server_log)}"
        )
    left = [processes.describe(pid) for pid in facts["processes_left"]]
    if left:
        raise ServerError(
            f"{handle.variant}: still running after KILL: {', '.join(left)}; "
            "end them by hand before the next server is started"
        )
    if not facts["port_closed"]:
        listener = processes.listener(handle.port)
        by = processes.describe(listener.pid) if listener else "a process that is not visible here"
        raise ServerError(f"{handle.variant}: port {handle.port} is still answered by {by}")
    if facts["stop_reason"] == "server exited":
        raise ServerError(
            f"{handle.variant}: the server had ended by itself (exit code "
            f"{facts['exit_code']}) before it was stopped; last lines of {handle.server_log}:\n"
            f"{log_tail(handle.server_log)}"
        )
    stopped = {
        "session_id": handle.session_id,
        "up_s": time.monotonic() - handle.started_s,
        **{
            key: facts[key]
            for key in (
                "stop_reason",
                "exit_code",
                "stop_s",
                "killed",
                "processes_left",
                "port_closed",
            )
        },
    }
    write_json(stopped, stopped_path)
    return stopped
