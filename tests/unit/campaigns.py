"""A campaign for tests of what is made of one."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from crossover.campaign import Campaign, load_campaign

CONFIG: dict[str, Any] = {
    "campaign": "test",
    "baseline": "plain",
    "model": {"name": "m"},
    "defaults": {"engine": "simulated", "args": {"memory-ms": 4.0, "overhead-ms": 2.0}},
    "variants": {"plain": {}, "spec": {"args": {"drafted-tokens": 3}, "env": {"A": "1"}}},
    "workloads": {"chat": {"prompts": "chat.jsonl", "max_tokens": 8}},
    "load": {"concurrency": [1, 4, 16], "trials": 4},
}


def config(**settings: Any) -> dict[str, Any]:
    """CONFIG with top-level keys replaced."""
    return copy.deepcopy({**CONFIG, **settings})


def campaign(folder: Path, **settings: Any) -> Campaign:
    """A campaign whose prompt file is written into `folder`."""
    (folder / "chat.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    return load_campaign(config(**settings), "test.yaml", folder)
