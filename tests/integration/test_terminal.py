"""What a person at a terminal sees while a campaign runs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from pathlib import Path

from integration.workflow_copy import SNAKEMAKE, Workflow


def test_a_terminal_shows_where_the_run_stands(tmp_path: Path):
    workflow = Workflow.fresh(tmp_path / "workflow")
    workflow.config["workloads"].pop("code")
    workflow.config["load"] |= {"concurrency": [2], "trials": 1}
    workflow.config["load"]["steady"] = {"min_s": 1.5, "completions_per_client": 2, "max_s": 5}
    workflow.write_config()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    run = subprocess.Popen(
        [*SNAKEMAKE, "-c1", "reports/crossover.html"],
        cwd=workflow.folder,
        env=workflow.env,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = bytearray()

    def read() -> None:
        try:
            while block := os.read(ours, 65536):
                shown.extend(block)
        except OSError:  # the other end is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    assert run.wait(120) == 0
    reader.join(10)
    os.close(ours)
    lines = shown.decode(errors="replace").split("\r\x1b[2K")
    moving = [line for line in lines if " tok/s ·" in line]
    assert moving
    pattern = r"[12]/2 · (plain|spec) trial 1/1, chat C=2 · (\d+|–) tok/s · 0 errors · \w+ \d+ s"
    assert all(re.match(pattern, line) for line in moving), moving
    assert any(re.search(r" · ETA \d+ s", line) for line in moving), "from the second point on"
