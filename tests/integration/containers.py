"""Containers of the stand-in runtime of tests/stand_ins."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

STAND_INS = Path(__file__).parents[1] / "stand_ins"


@contextlib.contextmanager
def runtime(folder: Path) -> Iterator[dict[str, Any]]:
    """A runtime's daemon, and the settings of a variant whose server runs in one of its containers."""
    address = str(folder / "runtime.sock")
    daemon = subprocess.Popen(
        [sys.executable, str(STAND_INS / "container_daemon.py"), address],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    daemon.stdout.readline()
    cli = [sys.executable, str(STAND_INS / "container_cli.py"), address]
    server = [sys.executable, "{engines}/simulated_server.py", "--port", "{port}"]
    server += ["--model", "{model_name}"]
    try:
        yield {
            "engine": "openai",
            "command": [*cli, "run", "--name", "{name}", *server],
            "stop": [*cli, "rm", "--force", "{name}"],
        }
    finally:
        for process in psutil.Process(daemon.pid).children(recursive=True):
            process.kill()
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()


def containers() -> list[psutil.Process]:
    """The servers that run in containers."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            parent = process.parent()
            if parent and "container_daemon.py" in " ".join(parent.cmdline()):
                found.append(process)
    return found
