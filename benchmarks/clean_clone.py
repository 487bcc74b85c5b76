"""From a fresh clone to the report, and the second run: everything a new user does.

    .venv/bin/python benchmarks/clean_clone.py

Clones this repository, runs `make report` there with an environment of its own, then
`snakemake -c1 reports/crossover.html` again.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def timed(command: list[str], folder: Path) -> tuple[float, str]:
    """Seconds and output of a command."""
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return time.monotonic() - began, done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary) / "crossover"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        setup_s, _ = timed(["make", "setup"], clone)
        report_s, _ = timed(["make", "report"], clone)
        again_s, output = timed([".venv/bin/snakemake", "-c1", "reports/crossover.html"], clone)
        if "Nothing to be done" not in output:
            raise SystemExit(f"the second run did something:\n{output[-4000:]}")
        size_mib = (clone / "reports/crossover.html").stat().st_size / 2**20
    total_min = (setup_s + report_s) / 60
    print(f"fresh clone to report: {total_min:.1f} min (goal: 14), of which set-up {setup_s:.0f} s")
    print(f"second run: nothing to be done, {again_s:.1f} s (goal: 5)")
    print(f"report: {size_mib:.2f} MiB (goal: 2)")


if __name__ == "__main__":
    main()
