"""Points and sessions made from what was measured on an H200 (tests/data/gpu).

The tables have one run of each cell. Three trials are made of it by ±0.4 %, so that a verdict can
be reached at all; levels, ratios, gauges and the servers' settings are as recorded.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd

from crossover.records import POINTS, SESSIONS, to_table

DATA = Path(__file__).parents[1] / "data" / "gpu"
TOKENS = 256
"""In and out, of every request."""

WOBBLE = ((0.996, 1.0), (1.0, 1.003), (1.004, 0.999))
"""Of (baseline, variant) in each of three trials."""


def _rows(name: str, key: str, arm: str) -> list[dict[str, str]]:
    with open(DATA / name) as file:
        return [row for row in csv.DictReader(file) if row[key] == arm]


def _number(row: dict[str, str], name: str) -> float | None:
    return float(row[name]) if row.get(name) else None


def vllm(label: str, call: str) -> dict[int, dict[str, Any]]:
    """What was measured of a vLLM arm in one start, by level."""
    return {
        int(row["C"]): {
            "output_throughput_tokens_per_s": float(row["tok_s"]),
            "running_requests_mean": float(row["running"]),
            "acceptance_length": _number(row, "accept_len"),
        }
        for row in _rows("results_h200_vllm0.25.1.csv", "label", label)
        if row["call"] == call
    }


def sglang(config: str) -> dict[int, dict[str, Any]]:
    """What was measured of an SGLang arm in run 2, by level."""
    return {
        int(row["C"]): {
            "output_throughput_tokens_per_s": float(row["tok_s"]),
            "running_requests_mean": (float(row["running_mid"]) + float(row["running_end"])) / 2,
            "acceptance_length": _number(row, "accept_len_counters"),
        }
        for row in _rows("results_h200_sglang0.5.17.csv", "config", config)
        if row["run"] == "2"
    }


def tables(
    arms: dict[str, dict[int, dict[str, Any]]], sessions: dict[str, dict[str, Any]]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Points and sessions of `plain` and one other arm; each a start a trial.

    Args:
        arms: name → level → columns of the arm's points; the first is the baseline.
        sessions: name → columns of its sessions.
    """
    points, starts = [], []
    for place, (name, levels) in enumerate(arms.items()):
        for trial, wobble in enumerate(WOBBLE, start=1):
            starts.append(
                {
                    "variant": name,
                    "trial": trial,
                    "session_id": f"{name}-{trial}",
                    "host": "gpu",
                    "boot_id": "boot",
                    "hardware": json.dumps({"cpu": "x", "gpus": ["H200"]}),
                    "started_at": 1e9 + 600 * trial + 60 * place,
                    "command": ["serve"],
                    **sessions[name],
                }
            )
            for level, columns in levels.items():
                points.append(
                    {
                        "workload": "words",
                        "variant": name,
                        "trial": trial,
                        "concurrency": level,
                        "session_id": f"{name}-{trial}",
                        "valid": True,
                        "invalid_reasons": [],
                        "prompt_tokens_mean": TOKENS,
                        "output_tokens_mean": TOKENS,
                        "cached_tokens_share": 0.0,
                        **columns,
                        "output_throughput_tokens_per_s": wobble[place]
                        * columns["output_throughput_tokens_per_s"],
                    }
                )
    return to_table(points, POINTS).to_pandas(), to_table(starts, SESSIONS).to_pandas()


def description(**said: Any) -> dict[str, Any]:
    """The columns of a session whose server says this of itself."""
    return {"description": json.dumps(said), "engine_version": said.get("engine_version")}
