"""How long `snakemake -n` takes, and how much memory, for a large campaign.

.venv/bin/python benchmarks/planning.py [VARIANTS LEVELS TRIALS]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from integration.workflow_copy import SNAKEMAKE, Workflow, planned


def main() -> None:
    variants, levels, trials = map(int, sys.argv[1:] or (200, 8, 3))
    with tempfile.TemporaryDirectory() as folder:
        workflow = Workflow.fresh(Path(folder) / "workflow")
        workflow.config["workloads"].pop("code")
        workflow.config["load"] |= {"concurrency": [2**i for i in range(levels)], "trials": trials}
        workflow.config["variants"] = {
            "plain": {},
            **{f"v{i}": {"args": {"draft-ms": i / 100}} for i in range(1, variants)},
        }
        workflow.write_config()
        began = time.monotonic()
        done = subprocess.run(
            [*SNAKEMAKE, "-n"],
            cwd=workflow.folder,
            env=workflow.env,
            capture_output=True,
            text=True,
        )
        wall_s = time.monotonic() - began
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    jobs = planned(done.stdout + done.stderr)
    print(f"{variants} variants x {levels} levels x {trials} trials: {jobs.total()} jobs planned")
    print(f"wall: {wall_s:.1f} s (goal: 20), peak memory: {peak_mib:.0f} MiB (goal: 1024)")


if __name__ == "__main__":
    main()
