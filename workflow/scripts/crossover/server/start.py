"""Start a session: reclaim the devices, launch the supervisor, wait until it has the server."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from crossover import engines, provenance
from crossover.campaign import PROTOCOL, Variant
from crossover.errors import DeviceBusyError, ServerError
from crossover.server import debts, device_lock, device_memory, process_table, processes, supervisor
from crossover.server.session import Handle, log_tail, new_id

_LOWEST_PORT = 10_000
"""Of a server: well-known services have theirs below."""


def start(
    variant: Variant,
    *,
    facts: dict[str, Any],
    owner: str,
    handle: str,
    server_log: str,
    say: Callable[[str], None] = print,
) -> Handle:
    """Launch the supervisor of a new session and return its handle once the server exists.

    Args:
        facts: columns of records.SESSIONS that are known beforehand (campaign, trial, rank, …).
        owner: identity of the Snakemake process with which the session must end.
        server_log: where the server's output goes, with `{session_id}`.
        say: told what a person should know although the start goes on.

    Raises:
        EngineError: the engine is not installed.
        DeviceBusyError: another run holds a device.
        ServerError: what an earlier session left is still there, a log cannot be written, or the
            supervisor ended before it had started a server.
    """
    engines.get(variant.engine).check_installed(variant)
    for device in variant.devices:
        _reclaim(device, owner)
    debts.settle(variant.devices)
    for held in device_memory.in_use(variant.devices):
        say(f"{variant.name}: before the start, {held}")
    session_id = new_id()
    server_log = server_log.format(session_id=session_id)
    record = Path(handle).with_name("sessions") / f"{session_id}.jsonl"
    Path(handle).unlink(missing_ok=True)
    job = supervisor.Job(
        folder=os.getcwd(),
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
            **provenance.machine(variant.devices),
        },
        port=None if variant.url else free_port(),
        owner=owner,
        handle=handle,
        record=str(record),
        samples=str(Path(handle).with_name("samples") / record.name),
        server_log=server_log,
    )
    supervisor_log = supervisor.log_of(server_log)
    with _writable(variant, handle, record, server_log, supervisor_log) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "crossover.server.supervisor"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=Path(engines.__file__).parents[2],
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


def _writable(variant: Variant, *files: str | Path) -> BinaryIO:
    """Make the folders of a session's files, and open the last file, the supervisor's log.

    Raises:
        ServerError: names the folder or file that cannot be written.
    """
    try:
        for file in files:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            if not os.access(Path(file).parent, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), Path(file).parent)
        return open(files[-1], "wb")
    except OSError as error:
        raise ServerError(
            f"{variant.name}: cannot write {error.filename} ({error.strerror}); the server's log "
            "and records go there: make it writable, or make room, and run the same command again"
        ) from None


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


def _busy(devices: Any) -> str:
    for device in devices:
        if held := device_lock.holder(device):
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(held["since"]))
            return (
                f"device {device} is in use since {since} by campaign {held['campaign']} "
                f"(variant {held['variant']}) in {held['folder']}, supervisor "
                f"{process_table.describe(processes.pid_of(held['supervisor']))}; "
                "wait for that run or end it, then run the same command again"
            )
    return f"a device of {', '.join(devices)} was in use a moment ago; run the same command again"


def free_port() -> int:
    """A TCP port of this host that nothing listens on now.

    If possible below those that the kernel gives to outgoing connections: the load client of
    another session could get one of these before the server listens, which may take minutes.
    """
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    never_given = range(_LOWEST_PORT, lowest_given)
    for port in random.sample(never_given, min(len(never_given), 100)):
        with contextlib.suppress(OSError):
            return _bound(port)
    return _bound(0)


def _bound(port: int) -> int:
    """The port, or for 0 one of the kernel's choice, once it could be bound."""
    with socket.socket() as probe:
        probe.bind(("", port))
        return probe.getsockname()[1]
