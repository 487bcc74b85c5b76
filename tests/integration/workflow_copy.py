"""Real Snakemake on the simulated engine, in a copy of the workflow of its own."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SNAKEMAKE = [sys.executable, "-m", "snakemake"]

CAMPAIGN: dict[str, Any] = {
    "campaign": "test",
    "baseline": "plain",
    "model": {"name": "simulated"},
    "defaults": {
        "engine": "simulated",
        "devices": ["test0"],
        "startup_timeout_s": 20,
        "stop_grace_s": 3,
        "args": {"memory-ms": 4.0, "overhead-ms": 2.0, "compute-ms-per-token": 0.5},
    },
    "variants": {
        "plain": {},
        "spec": {"args": {"drafted-tokens": 3, "acceptance": 0.7}},
    },
    "workloads": {
        "chat": {"prompts": "config/prompts/chat.jsonl", "max_tokens": 8, "ignore_eos": True},
        "code": {"prompts": "config/prompts/code.jsonl", "max_tokens": 8, "ignore_eos": True},
    },
    "load": {
        "concurrency": [1, 4],
        "trials": 2,
        "ramp_s": 0,
        "warmup": {"completions_per_client": 1, "max_s": 5},
        "steady": {"min_s": 0.2, "completions_per_client": 2, "max_s": 5},
        "request_timeout_s": 10,
        "idle_timeout_s": 5,
    },
}


class Workflow:
    """A copy of the workflow with a campaign of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = copy.deepcopy(CAMPAIGN)
        self.env = {**os.environ, "CROSSOVER_LOCK_DIR": str(folder / "locks")}

    @classmethod
    def fresh(cls, folder: Path) -> Workflow:
        """A new copy in which nothing was measured."""
        for name in ("rules", "workflow", "profiles", "envs"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy2(ROOT / "Snakefile", folder)
        (folder / "config/prompts").mkdir(parents=True)
        shutil.copy2(ROOT / "config/campaign.schema.yaml", folder / "config")
        workflow = cls(folder)
        for name in ("chat", "code"):
            lines = [f'{{"prompt": "{name} question number {i}"}}\n' for i in range(20)]
            (folder / f"config/prompts/{name}.jsonl").write_text("".join(lines))
        workflow.write_config()
        return workflow

    def copied_to(self, folder: Path) -> Workflow:
        """Another copy with all results, as they are."""
        shutil.copytree(self.folder, folder, copy_function=shutil.copy2)
        workflow = Workflow(folder)
        workflow.config = copy.deepcopy(self.config)
        return workflow

    def write_config(self, **settings: Any) -> None:
        """Write config/config.yaml, with top-level keys replaced."""
        self.config.update(settings)
        text = yaml.safe_dump(self.config, sort_keys=False)
        (self.folder / "config/config.yaml").write_text(text)

    def run(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`snakemake ARGS` to its end; its stdout and stderr together in `stdout`."""
        done = subprocess.run(
            [*SNAKEMAKE, *args],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        if check and done.returncode:
            raise AssertionError(done.stdout[-6000:])
        return done

    def plan(self, *args: str) -> Counter[str]:
        """What `snakemake -n` would do: jobs by rule."""
        return planned(self.run("-n", *args).stdout)

    def points(self, pattern: str = "*") -> list[Path]:
        """Folders of measured points whose path matches."""
        found = self.folder.glob("results/test/*/*/trial~*/*/*/concurrency~*/point.json")
        return sorted(p.parent for p in found if p.match(f"*/{pattern}/point.json"))


def planned(output: str) -> Counter[str]:
    """Jobs by rule in Snakemake's table of job stats; empty when nothing is to be done."""
    if "Job stats:" not in output:
        assert "Nothing to be done" in output, output
        return Counter()
    table = output.split("Job stats:", 1)[1].split("total", 1)[0]
    jobs = Counter({n: int(c) for n, c in re.findall(r"^(\w+)\s+(\d+)\s*$", table, re.MULTILINE)})
    del jobs["all"]
    return jobs
