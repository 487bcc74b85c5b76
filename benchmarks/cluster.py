"""How much sooner a campaign of four equal sessions ends on two nodes, and whether it says the same.

    .venv/bin/python benchmarks/cluster.py        # as root, after `make slurm`; see docs/cluster.md

Runs the campaign on a real Slurm of one node, then on one of two, both on this machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("tests", "workflow/scripts")]
from integration import slurm_cluster
from integration.workflow_copy import Workflow

GOAL = 0.6


def measured_s(folder: Path, nodes: tuple[str, ...]) -> tuple[float, list[tuple[str, ...]]]:
    """Wall seconds of the campaign on a cluster of these nodes, and its verdicts."""
    workflow = Workflow.fresh(folder / "workflow")
    workflow.config["workloads"].pop("code")
    workflow.config["workloads"]["chat"]["max_tokens"] = 32
    workflow.config["load"] |= {"concurrency": [1, 2, 16]}
    workflow.config["load"]["steady"] |= {"min_s": 8.0, "max_s": 8.0}
    workflow.write_config()
    with slurm_cluster.slurm(folder / "slurm", nodes) as cluster:
        workflow.env = cluster.env
        began = time.monotonic()
        workflow.run(
            *("--profile", "profiles/slurm", "--jobs", str(len(nodes))),
            *("--slurm-init-seconds-before-status-checks", "2", "reports/crossover.html"),
        )
        wall_s = time.monotonic() - began
    found = json.loads((workflow.folder / "results/test/verdicts.json").read_text())["verdicts"]
    return wall_s, [
        (v["metric"], v["verdict"], *(f"C={x['concurrency']}: {x['label']}" for x in v["levels"]))
        for v in found
        if v["metric"] == "output_throughput"
    ]


def main() -> int:
    if why := slurm_cluster.missing():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as temporary:
        results = []
        for name, nodes in (("one", ("node1",)), ("two", ("node1", "node2"))):
            folder = Path(temporary) / name
            folder.mkdir()
            results.append(measured_s(folder, nodes))
            print(f"{name}: {results[-1][0]:.0f} s; {results[-1][1]}", flush=True)
    (one_s, one), (two_s, two) = results
    print(f"two nodes: {two_s / one_s:.2f} of one node's time (goal: {GOAL})")
    print(f"verdicts: {'identical' if one == two else 'they differ'}")
    return int(one != two or two_s > GOAL * one_s)


if __name__ == "__main__":
    sys.exit(main())
