"""What a session owes its devices until its end is proven, kept in the devices' lock files.

A supervisor pays at the end of its session. If it could not, e.g. since all processes were killed
at once, whoever takes the device next pays before a server is started: it ends the processes that
are left, runs the session's own `stop` command, and waits until the device's memory is back.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crossover.campaign import from_shell
from crossover.errors import ServerError
from crossover.server import device_lock, device_memory, environment, process_table, processes

_STOP_COMMAND_TIMEOUT_S = 120.0
_MEMORY_WAIT_S = 30.0
_LOCK_WAIT_S = 10.0
"""Whoever only looks who holds the device locks it for a moment; one that was killed, until it is gone."""


def settle(devices: Iterable[str]) -> None:
    """End what outlived its supervisor on this host, then pay what the last sessions on devices owe.

    A device in use is left alone.

    Raises:
        ServerError: it cannot be paid: a process survives KILL, a `stop` command fails, or memory
            is still held.
    """
    _end_orphans()  # first: workers hold the memory of all their devices
    for device in devices:
        _settle(device)


def _end_orphans() -> None:
    if orphans := processes.orphans():
        print(f"ending {', '.join(map(process_table.describe, orphans))}", flush=True)
        if left := process_table.kill_all(orphans):
            raise ServerError(
                "processes of an earlier server survive KILL: "
                f"{', '.join(map(process_table.describe, left))}; end them before the next server"
            )


def _settle(device: str) -> None:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while (fd := device_lock.try_lock(device)) is None:
        held = device_lock.holder(device)
        if held and (processes.is_alive(held["supervisor"]) or time.monotonic() > deadline):
            return
        time.sleep(0.02)
    try:
        last = device_lock.read(fd)
        owed = last.get("owed") if last else None
        if not owed:
            return
        print(f"{device}: ending what {last['variant']} of {last['folder']} left", flush=True)
        problems = []
        if owed["stop"] and (problem := run_stop_command(owed["stop"], owed["env"])):
            problems.append(problem)
        if owed["memory_bytes"] is not None:
            before = {device: owed["memory_bytes"]}
            problems += device_memory.wait_until_back(before, _MEMORY_WAIT_S)[1]
        if problems:
            raise ServerError(
                f"device {device} is not as it was before campaign {last['campaign']} (variant "
                f"{last['variant']}, folder {last['folder']}): {'; '.join(problems)}. Then run the "
                f"same command again; if all is well, remove {device_lock.path(device)} first"
            )
        device_lock.write(fd, {**last, "owed": None})
    finally:
        os.close(fd)


def run_stop_command(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Run a variant's `stop` command; returns what went wrong in words; None: nothing.

    Args:
        command: placeholders filled in, `${NAME}` not.
        env: the server's own variables, `${NAME}` not filled in.
    """
    shown = f"its stop command, {' '.join(command)!r},"
    try:
        done = subprocess.run(
            [from_shell(word) for word in command],
            env=environment.whole(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_STOP_COMMAND_TIMEOUT_S,
        )
    except KeyError as error:
        return f"{shown} needs ${{{error.args[0]}}}, which is not set in this shell"
    except OSError as error:
        return f"{shown} cannot be run ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"{shown} did not end in {_STOP_COMMAND_TIMEOUT_S:.0f} s"
    if done.returncode:
        said = done.stdout.strip().splitlines()[-3:]
        return f"{shown} ended with status {done.returncode}: {' '.join(said)}"
    return None


def owed(
    stop: Sequence[str] | None, env: Mapping[str, str], memory_bytes: int | None
) -> dict[str, Any] | None:
    """What a session owes one device; None: nothing outlives its processes."""
    if stop is None and memory_bytes is None:
        return None
    return {"stop": stop, "env": dict(env), "memory_bytes": memory_bytes}
