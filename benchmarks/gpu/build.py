#!/usr/bin/env python3
"""Build an archive that a GPU machine without a network unpacks beside its own Python 3.12.

Usage: build.py NAME FOLDER [--wheels CACHE]
  NAME     product: the workflow's packages; charts: those that draw its report;
           vllm, sglang: the engine, slimmed (slim.py)
  FOLDER   gets NAME.txz
  CACHE    folder of wheels, kept: what it holds is not downloaded again

No GPU is needed. The machine's image is expected to have torch 2.11 (CUDA 13), triton, pandas,
pyarrow, scipy, httpx, jinja2, psutil, nvidia-ml-py and pyyaml.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import slim

HERE = Path(__file__).parent
SLIM = {"product": slim.product, "vllm": slim.vllm, "sglang": slim.sglang}
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]

TARGET = [
    *("--only-binary=:all:", "--no-deps", "--implementation", "cp", "--python-version", "3.12"),
    *(word for abi in ("cp312", "abi3", "none") for word in ("--abi", abi)),
    *(
        word
        for platform in (
            *(f"manylinux_2_{minor}_x86_64" for minor in range(5, 40)),
            *(f"manylinux{year}_x86_64" for year in (1, 2010, 2014)),
            "any",
        )
        for word in ("--platform", platform)
    ),
]

FROM_SOURCE = {"product": ["connection-pool"]}
"""Pure Python that is published without a wheel."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=sorted(p.stem for p in HERE.glob("requirements/*.txt")))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheels", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        site = Path(scratch) / "site"
        install(args.name, args.wheels or Path(scratch) / "wheels", site)
        if args.name in SLIM:
            SLIM[args.name](site)
        if args.name == "sglang":
            shutil.copytree(HERE / "stubs", site, dirs_exist_ok=True)
        pack(site, args.folder / f"{args.name}.txz")


def install(name: str, wheels: Path, site: Path) -> None:
    """Unpack the wheels of `name`, for the machine's Python rather than this one."""
    wanted = requirements(name)
    wheels.mkdir(parents=True, exist_ok=True)
    source = pinned(FROM_SOURCE.get(name, []))
    if source:
        _run(*PIP, "wheel", "--no-deps", "--wheel-dir", wheels, *source)
    found = ("--find-links", wheels)
    _run(*PIP, "download", *TARGET, *found, "--dest", wheels, *wanted)
    _run(
        *(*PIP, "install", "--no-index", *found, *TARGET, "--no-compile", "--target", site),
        *(*wanted, *source),
    )


def requirements(name: str) -> list[str]:
    """What `name` consists of; where its list gives no version, in the version of our lock file."""
    listed = (HERE / "requirements" / f"{name}.txt").read_text().split()
    return [word if "==" in word else pinned([word])[0] for word in listed]


def pinned(names: list[str]) -> list[str]:
    """`name==version` of each, from requirements.txt."""
    lock = (HERE.parents[1] / "requirements.txt").read_text()
    versions = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock, re.MULTILINE))
    return [f"{name}=={versions[name]}" for name in names]


def pack(site: Path, archive: Path) -> None:
    """The same tree gives the same bytes."""
    tar = [
        "tar",
        "-C",
        site,
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--mtime=@0",
        "-cf",
        "-",
        ".",
    ]
    with archive.open("wb") as out, subprocess.Popen(tar, stdout=subprocess.PIPE) as packed:
        subprocess.run(["xz", "-9", "-T2"], stdin=packed.stdout, stdout=out, check=True)
    if packed.returncode:
        raise subprocess.CalledProcessError(packed.returncode, tar)
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB")


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
