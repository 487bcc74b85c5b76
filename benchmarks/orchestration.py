"""What the workflow itself costs a point: wall time less loads, starts and stops of servers.

    .venv/bin/python benchmarks/orchestration.py

Runs config/campaigns/simulated.yaml in a copy of the workflow.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from integration.workflow_copy import ROOT, Workflow


def main() -> None:
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
    main()
