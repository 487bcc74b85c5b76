"""Start a session: reclaim the devices, launch the supervisor, wait until it has the server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crossover import engines, provenance
from crossover.campaign import PROTOCOL, Variant
from crossover.errors import DeviceBusyError, ServerError
from crossover.server import device_lock, processes, supervisor
from crossover.server.session import Handle, log_tail, new_id


def start(
    variant: Variant,
    *,
    facts: dict[str, Any],
    owner: str,
    handle: str,
    server_log: str,
) -> Handle:
    """Launch the supervisor of a new session and return its handle once the server exists.

    Args:
        facts: columns of records.SESSIONS that are known beforehand (campaign, trial, rank, …).
        owner: identity of the Snakemake process with which the session must end.
        server_log: where the server's output goes, with `{session_id}`.

    Raises:
        EngineError: the engine is not installed.
        DeviceBusyError: another run holds a device.
        ServerError: the supervisor ended before it had started a server.
    """
    engines.get(variant.engine).check_installed(variant)
    for device in variant.devices:
        _reclaim(device, owner)
    _reap_orphans()
    session_id = new_id()
    server_log = server_log.format(session_id=session_id)
    record = Path(handle).with_name("sessions") / f"{session_id}.jsonl"
    for path in (handle, server_log, record):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(handle).unlink(missing_ok=True)
    job = supervisor.Job(
        session_id=session_id,
        variant=asdict(variant),
        trial=facts["trial"],
        facts={
            **facts,
            "engine": variant.engine,
            "devices": list(variant.devices),
            "model_name": variant.model.name,
            "model_path": variant.model.path,
            "model_fingerprint": provenance.fingerprint(variant.model.path),
            "speculation_method": variant.speculation.method if variant.speculation else None,
            "drafted_tokens": engines.get(variant.engine).drafted_tokens(variant),
            "protocol": PROTOCOL,
            **provenance.machine(),
        },
        port=None if variant.url else free_port(),
        owner=owner,
        handle=handle,
        record=str(record),
        samples=str(Path(handle).with_name("samples") / record.name),
        server_log=server_log,
    )
    supervisor_log = supervisor.log_of(server_log)
    with open(supervisor_log, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "crossover.server.supervisor"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(engines.__file__).parents[2])},
        )
    process.stdin.write(json.dumps(asdict(job)).encode())
    process.stdin.close()
    while (started := Handle.read(handle)) is None:
        if (status := process.poll()) is not None:
            if status == supervisor.EXIT_DEVICE_BUSY:
                raise DeviceBusyError(_busy(variant.devices))
            raise ServerError(
                f"{variant.name}: the supervisor ended with status {status} before the server "
                f"was started:\n{log_tail(supervisor_log)}"
            )
        time.sleep(0.02)
    return started


def _reclaim(device: str, owner: str) -> None:
    """End what a failed session of this run, or a dead run, left on the device."""
    held = device_lock.holder(device)
    if not held:
        return
    if not device_lock.is_reclaimable(held, owner):
        raise DeviceBusyError(_busy([device]))
    print(f"reclaiming {device} from session {held['variant']} of {held['folder']}", flush=True)
    processes.stop(held["supervisor"], grace_s=processes.SUPERVISOR_GRACE_S)
    Path(held["handle"]).unlink(missing_ok=True)


def _reap_orphans() -> None:
    """End what outlived its supervisor, e.g. workers of a server whose supervisor was killed."""
    if orphans := processes.orphans():
        print(f"ending {', '.join(map(processes.describe, orphans))}", flush=True)
        if left := processes.kill_all(orphans):
            raise ServerError(
                "processes of an earlier server survive KILL: "
                f"{', '.join(map(processes.describe, left))}; end them before the next server"
            )


def _busy(devices: Any) -> str:
    for device in devices:
        if held := device_lock.holder(device):
            since = time.strftime("%H:%M:%S", time.localtime(held["since"]))
            return (
                f"device {device} is in use since {since} by campaign {held['campaign']} "
                f"(variant {held['variant']}) in {held['folder']}, supervisor "
                f"{processes.describe(processes.pid_of(held['supervisor']))}; "
                "wait for that run or end it, then run the same command again"
            )
    return f"a device of {', '.join(devices)} was in use a moment ago; run the same command again"


def free_port() -> int:
    """A TCP port of this host that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
