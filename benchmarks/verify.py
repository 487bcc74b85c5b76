"""Run everything that takes longer than the tests may, and write docs/verification.md.

    make verify                                              everything anew
    .venv/bin/python benchmarks/verify.py judging.py …       these; the other sections stay
    .venv/bin/python benchmarks/verify.py --repeat FOLDER    with the complete runs in FOLDER

Everything takes about two and a half hours on two cores, which must be idle otherwise.
"""

from __future__ import annotations

import argparse
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
    ("load_client.py",),
    ("report.py",),
    ("clean_clone.py",),
    ("repeat_default.py", "FOLDER"),
)
HEADING = "## `.venv/bin/python benchmarks/"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted({program[0] for program in PROGRAMS})
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(names))
    parser.add_argument("--repeat", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    if unknown := set(args.programs) - set(names):
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(names)}")

    failed = 0
    commit = revision.commit()  # before the page itself is changed
    with tempfile.TemporaryDirectory() as temporary:
        repeat = str(args.repeat or Path(temporary) / "repeat")
        for program in PROGRAMS:
            if args.programs and program[0] not in args.programs:
                continue
            said, status = section(program, repeat, commit)
            failed += status != 0
            write({**sections(), " ".join(program): said})
            print(said)
    return failed


def section(program: tuple[str, ...], repeat: str, commit: str | None) -> tuple[str, int]:
    """What a program said, under its date, commit, machine, duration and exit status; the last."""
    hardware = provenance.hardware()
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, f"benchmarks/{program[0]}"]
        + [repeat if word == "FOLDER" else word for word in program[1:]],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = [
        f"{HEADING}{' '.join(program)}`",
        "",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit}, "
        f"{hardware['cores']} cores of {hardware['cpu']}, {hardware['memory_gib']} GiB; "
        f"{time.monotonic() - began:.0f} s, exit status {done.returncode}",
        "",
        "```",
        done.stdout.rstrip(),
        "```",
    ]
    return "\n".join(lines), done.returncode


def sections() -> dict[str, str]:
    """The page's sections by their commands."""
    parts = PAGE.read_text().split(HEADING)[1:] if PAGE.exists() else []
    return {part[: part.index("`")]: (HEADING + part).rstrip() for part in parts}


def write(found: dict[str, str]) -> None:
    """The page, its sections in the order of PROGRAMS; a program that is gone is left out."""
    ordered = [found[name] for p in PROGRAMS if (name := " ".join(p)) in found]
    PAGE.write_text("\n\n".join(["# Verification", "Made by `make verify`.", *ordered]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
