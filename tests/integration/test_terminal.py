"""What a person at a terminal sees while a campaign runs."""

from __future__ import annotations

import os
import pty
import re
import subprocess
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
    moving = [line for line in lines if "tok/s ·" in line]
    assert moving
    assert re.search(
        r"(plain|spec) trial 1 of 1, chat, concurrency 2 · point [12] of 2 · .*\d+ s · "
        r"(\d+|–) tok/s · 0 errors",
        moving[0],
    ), moving[0]
