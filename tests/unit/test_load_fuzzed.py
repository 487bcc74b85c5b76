"""Streams that go wrong: the load client's word against an independent reading of them."""

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "fuzz_streams.py"


def test_a_thousand_fuzzed_streams():
    ended = subprocess.run(
        [sys.executable, PROGRAM, "--streams", "1000"], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    good, played = re.search(r"^(\d+) of (\d+) streams$", ended.stdout, re.MULTILINE).groups()
    assert good == played
    assert int(played) >= 1000
    for kind in ("whole", "truncated", "reset", "silent", "damaged body", "damaged HTTP"):
        assert f"| {kind} |" in ended.stdout
