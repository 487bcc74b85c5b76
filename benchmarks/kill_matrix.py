"""Every kind of kill at every moment of a run, three times, and twenty kills at random moments.

    .venv/bin/python benchmarks/kill_matrix.py [ROUNDS RANDOM_KILLS]

The table says how many of the cell's rounds passed; "–" is a cell that cannot occur. What must be
true after each kill is in tests/integration/kills.py. Exit status 1: a test failed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("tests", "workflow/scripts")]
from integration.kills import KILLS, MOMENTS, OVER_TWO_GPUS
from integration.workflow_copy import ROOT

SERVERS = {
    "": KILLS,
    "-stubborn": KILLS,
    "-stubborn-no_namespaces": KILLS,
    "-two_gpus": OVER_TWO_GPUS,
    "-two_gpus-no_namespaces": OVER_TWO_GPUS,
}
"""Kinds of kill by kind of server, as the tests' names end."""


def main() -> int:
    rounds, random_kills = sys.argv[1:] or ("3", "20")
    options = ["--kill-rounds", rounds, "--random-kills", random_kills]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.xml"
        command = [sys.executable, "-m", "pytest", "-q", "tests/integration/test_kills.py"]
        # runs wait more than they compute, and each has a folder, ports and locks of its own
        beside = ["-n", "3", "--max-worker-restart", "0"]
        done = subprocess.run(
            [*command, *beside, *options, f"--junitxml={result}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        run, passed = counted(ElementTree.parse(result).iter("testcase"))
    for server in SERVERS:
        print(table(server, run, passed), end="\n\n")
    print(f"{random_kills} kills at random moments: ", end="")
    print("nothing left, nothing lost" if passed["random"] else "FAILED")
    print(done.stdout if done.returncode else done.stdout.splitlines()[-1])
    return done.returncode


def counted(tests: object) -> tuple[Counter[str], Counter[str]]:
    """How often each cell was run, and how often it passed."""
    run, passed = Counter(), Counter()
    for test in tests:
        # pytest numbers the rounds of a cell at the end of its name
        cell = re.search(r"\[(.*?)\d*\]", test.get("name"))
        name = cell[1] if cell else "random"
        run[name] += 1
        passed[name] += not any(child.tag in ("failure", "error", "skipped") for child in test)
    return run, passed


def table(server: str, run: Counter[str], passed: Counter[str]) -> str:
    """Kinds of kill by moment, for one kind of server; moments without any cell are left out."""
    moments = [
        moment.__name__
        for moment in MOMENTS
        if any(run[f"{kill.__name__}-{moment.__name__}{server}"] for kill in SERVERS[server])
    ]
    lines = [
        f"{server.removeprefix('-') or 'any server':24}" + "".join(f"{m:>13}" for m in moments)
    ]
    for kill in SERVERS[server]:
        names = [f"{kill.__name__}-{moment}{server}" for moment in moments]
        if any(run[name] for name in names):
            cells = [f"{passed[name]}/{run[name]}" if run[name] else "–" for name in names]
            lines.append(f"{kill.__name__:24}" + "".join(f"{cell:>13}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
