"""Run everything that takes longer than the tests may, and write docs/verification.md.

    make verify                                            everything anew
    .venv/bin/python benchmarks/verify.py FOLDER           with the complete runs in FOLDER/repeat

Takes about two and a half hours on two cores, which must be idle otherwise.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "verification.md"

sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
from crossover import provenance, revision

PROGRAMS = (
    ("golden_cases.py", "tests/data/golden_public.json"),
    ("verdict_truth.py",),
    ("what_if_truth.py",),
    ("judging.py",),
    ("summarise.py",),
    ("summarise.py", "--requests", "10000000"),
    ("overload_rule.py",),
    ("prompt_lengths.py",),
    ("planning.py",),
    ("orchestration.py",),
    ("kill_matrix.py",),
    ("fuzz_streams.py",),
    ("load_client.py", "--quick"),
    ("report.py",),
    ("clean_clone.py",),
    ("repeat_default.py", "{folder}/repeat"),
)


def main() -> int:
    hardware = provenance.hardware()
    lines = [
        "# Verification",
        "",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {revision.commit()}, "
        f"{hardware['cores']} cores of {hardware['cpu']}, {hardware['memory_gib']} GiB. "
        "Made by `make verify`.",
    ]
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = sys.argv[1] if len(sys.argv) > 1 else temporary
        for program in PROGRAMS:
            arguments = [word.format(folder=folder) for word in program[1:]]
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, f"benchmarks/{program[0]}", *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            failed += done.returncode != 0
            shown = " ".join(("benchmarks/" + program[0], *program[1:])).replace(
                "{folder}", "FOLDER"
            )
            lines += [
                "",
                f"## `.venv/bin/python {shown}`",
                "",
                f"{time.monotonic() - began:.0f} s, exit status {done.returncode}",
                "",
                "```",
                done.stdout.rstrip(),
                "```",
            ]
            PAGE.parent.mkdir(exist_ok=True)
            PAGE.write_text("\n".join(lines) + "\n")
            print("\n".join(lines[-8:]))
    return failed


if __name__ == "__main__":
    sys.exit(main())
