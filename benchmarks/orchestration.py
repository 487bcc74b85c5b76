"""What the workflow itself costs a point, and what it adds to a server's start and stop.

    .venv/bin/python benchmarks/orchestration.py

Runs config/campaigns/simulated.yaml in a copy of the workflow; then starts and stops one of its
servers a few times, through the scripts of the rules and by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import yaml

for folder in ("tests", "workflow/scripts"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
from integration.workflow_copy import ROOT, Workflow

from crossover.campaign import Model, Variant
from crossover.server.processes import OWNER, identity, is_port_open
from crossover.server.start import free_port

SIMULATED_SERVER = str(ROOT / "workflow/scripts/crossover/engines/simulated_server.py")


TIMES = 5


def timed(command: Sequence[str], **where: Any) -> float:
    """Seconds that a command takes; it must succeed."""
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **where)
    return time.monotonic() - began


def bare_start_and_exit_s() -> tuple[float, float]:
    """Seconds that a server takes by itself from its start to /health, and from TERM to its end."""
    port = free_port()
    began = time.monotonic()
    server = subprocess.Popen(
        [sys.executable, SIMULATED_SERVER, "--port", str(port)], stderr=subprocess.DEVNULL
    )
    while not is_port_open("127.0.0.1", port):
        time.sleep(0.01)
    ready_s = time.monotonic() - began
    began = time.monotonic()
    server.terminate()
    server.wait()
    return ready_s, time.monotonic() - began


def life() -> None:
    """Print what start_server and stop_server add to a healthy server's own start and exit."""
    variant = Variant("plain", "simulated", Model("simulated"), devices=("benchmark0",))
    facts = {"campaign": "benchmark", "variant": "plain", "trial": 1, "rank": 0}
    spec = json.dumps({"variant": asdict(variant), "facts": {**facts, "server_digest": "0" * 8}})
    starts, readies, stops, inside = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {OWNER: identity(), "CROSSOVER_LOCK_DIR": f"{folder}/locks"}

        def script(name: str, *args: str) -> float:
            program = str(ROOT / "workflow/scripts" / name)
            return timed([sys.executable, program, *args], cwd=folder, env=environment)

        log = ("--handle", "handle.json", "--server-log", "server-{session_id}.log")
        for _ in range(TIMES):
            starts.append(script("start_server.py", spec, *log))
            readies.append(script("check_health.py", spec, "handle.json", "health.json"))
            stops.append(script("stop_server.py", "handle.json", "stopped.json"))
            inside.append(json.loads((Path(folder) / "stopped.json").read_text())["stop_s"])
    bare = [bare_start_and_exit_s() for _ in range(TIMES)]
    exit_s = median(end for _, end in bare)
    print(
        f"start_server: {median(starts):.2f} s until the server is launched (goal: 1); the server "
        f"alone listens after {median(start for start, _ in bare):.2f} s; check_health "
        f"{median(readies):.2f} s"
    )
    print(
        f"stop_server: {median(stops):.2f} s, of which stop and proof {median(inside):.2f} s; the "
        f"server alone ends in {exit_s:.2f} s: {median(stops) - exit_s:.2f} s more (goal: 1)"
    )


def campaign() -> None:
    """Print what the workflow costs beside loads and servers."""
    with tempfile.TemporaryDirectory() as folder:
        workflow = Workflow.fresh(Path(folder) / "workflow")
        workflow.config = yaml.safe_load((ROOT / "config/campaigns/simulated.yaml").read_text())
        prompts = ROOT / "config/prompts/simulated.jsonl"
        (workflow.folder / "config/prompts/simulated.jsonl").write_bytes(prompts.read_bytes())
        workflow.write_config()
        began = time.monotonic()
        workflow.run("-c1", "reports/crossover.html")
        wall_s = time.monotonic() - began
        began = time.monotonic()
        workflow.run("-c1", "reports/crossover.html")
        again_s = time.monotonic() - began
        results = workflow.folder / "results" / workflow.config["campaign"]
        points = pd.read_parquet(results / "points.parquet")
        sessions = pd.read_parquet(results / "sessions.parquet")
    load_s = points["load_s"].sum()
    servers_s = (sessions["ready_after_s"] + sessions["stop_s"]).sum()
    overhead_s = wall_s - load_s - servers_s
    print(f"{len(points)} points, {len(sessions)} sessions: wall {wall_s:.1f} s")
    print(f"loads {load_s:.1f} s, starts and stops of servers {servers_s:.1f} s")
    print(f"orchestration: {overhead_s / len(points):.2f} s a point (goal: 2)")
    print(f"second run, nothing to be done: {again_s:.1f} s (goal: 5)")


if __name__ == "__main__":
    campaign()
    life()
