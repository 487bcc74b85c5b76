"""Does the default campaign's verdict repeat? Runs it whole, several times, and compares.

    .venv/bin/python benchmarks/repeat_default.py FOLDER [RUNS]

Each run is a fresh copy of the workflow in FOLDER/run~N. A run that is complete there is not
repeated, so that the program can be interrupted. Takes about ten minutes a run; the machine must
be idle otherwise.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
from crossover import revision

PARTS = ("Snakefile", "config", "rules", "workflow", "profiles", "envs", "requirements.txt")


def main() -> None:
    folder, runs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    found = Counter()
    for number in range(1, runs + 1):
        summary = run(folder / f"run~{number}")
        crossings = ", ".join(
            f"{c['c_star']:.1f} ({c['ci'][0]:.1f}–{c['ci'][1]:.1f})" for c in summary["crossings"]
        )
        ratios = "  ".join(
            f"C={n['concurrency']}: {n['ratio']:.2f} ({n['lo']:.2f}–{n['hi']:.2f}) {n['label']}"
            for n in summary["levels"]
        )
        print(
            f"run {number} (commit {summary['commit']}): {summary['verdict']} {crossings}; "
            f"{summary['wall_s']:.0f} s; {ratios}"
        )
        sys.stdout.flush()
        found[summary["verdict"]] += 1
    verdict, times = found.most_common(1)[0]
    print(f"{verdict}: {times} of {runs} runs")


def run(folder: Path) -> dict:
    """One complete run; returns its verdict with the wall time."""
    summary = folder / "summary.json"
    if not summary.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in PARTS:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, folder / name)
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "snakemake", "-c1", "reports/crossover.html"],
            cwd=folder,
            check=True,
            stdout=(folder / "run.log").open("w"),
            stderr=subprocess.STDOUT,
        )
        wall_s = time.monotonic() - began
        (verdicts,) = folder.glob("results/*/verdicts.json")
        verdict = json.loads(verdicts.read_text())["verdicts"][0]
        commit = revision.commit()
        summary.write_text(json.dumps({**verdict, "wall_s": wall_s, "commit": commit}))
    return json.loads(summary.read_text())


if __name__ == "__main__":
    main()
