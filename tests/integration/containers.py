"""Containers of the stand-in runtime of tests/stand_ins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

STAND_INS = Path(__file__).parents[1] / "stand_ins"


class Runtime:
    """A runtime's daemon; `settings`: a variant whose server runs in one of its containers."""

    def __init__(self, folder: Path) -> None:
        address = str(folder / "runtime.sock")
        self._daemon = psutil.Popen(
            [sys.executable, str(STAND_INS / "container_daemon.py"), address],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._daemon.stdout.readline()
        cli = [sys.executable, str(STAND_INS / "container_cli.py"), address]
        server = [sys.executable, "{engines}/simulated_server.py", "--port", "{port}"]
        server += ["--model", "{model_name}"]
        self.settings = {
            "engine": "openai",
            "command": [*cli, "run", "--name", "{name}", *server],
            "stop": [*cli, "rm", "--force", "{name}"],
        }

    @property
    def containers(self) -> list[psutil.Process]:
        """The servers that run in its containers."""
        return self._daemon.children()

    def end(self) -> None:
        """Kill the daemon and all containers."""
        for process in self._daemon.children(recursive=True):
            process.kill()
        self._daemon.kill()
        self._daemon.wait()
        self._daemon.stdout.close()
