"""Result files of `vllm bench serve`, with or without `--save-detailed`.

One JSON object a run; with `--append-result` one a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossover import metrics
from crossover.imports import bench_json, names
from crossover.imports.format import Format
from crossover.imports.run import (
    Run,
    known,
    level,
    number,
    numbers,
    per,
    positive,
    run_at,
    seconds,
    text,
    unix_s,
)

_ASKED = ("dataset_name", "random_input_len", "random_output_len")
"""Written by sweeps and `--metadata`; the tool itself does not say what it asked."""


class VllmBench(Format):
    """What `--save-result` writes."""

    name = "vllm bench serve"
    keys = ("model_id", "duration", "completed", "output_throughput", "request_rate")

    def run(self, found: Mapping[str, Any], path: Path, source: str) -> Run:
        """The run of an object, or of a row of a sweep's table."""
        return run_at(
            level(found.get("max_concurrency"), found.get("request_rate")),
            _figures(found),
            source=source,
            tool=self.name,
            variant=self.variant(found, path),
            trial=self.trial(found, path),
            asked=known({key: found.get(key) for key in _ASKED}),
            server=known({"model_name": text(found.get("model_id"))}),
            warnings=bench_json.peak_remark(found),
            requests=bench_json.request_rows(found),
        )

    def variant(self, found: Mapping[str, Any], path: Path) -> str:
        """The label that was given, or what the file's name says."""
        return text(found.get("label")) or names.variant_of(path)

    def trial(self, found: Mapping[str, Any], path: Path) -> int | None:
        """What the file's name counts."""
        return names.trial_of(path)


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    latency = seconds(found.get("mean_e2el_ms"))
    rate = positive(found.get("request_throughput"))
    ended = unix_s(found.get("date"), "%Y%m%d-%H%M%S")
    return (
        bench_json.figures(found, e2e="e2el")
        | _speculation(found)
        | known(
            {
                # Little's law
                "achieved_concurrency": None if latency is None or rate is None else rate * latency,
                "started_at": None
                if ended is None
                else ended - (number(found.get("duration")) or 0),
            }
        )
    )


def _speculation(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the tool read from the server's counters before and after the run."""
    accepted = number(found.get("spec_decode_accepted_tokens"))
    return known(
        {
            "acceptance_length": positive(found.get("spec_decode_acceptance_length")),
            "acceptance_rate": per(found.get("spec_decode_acceptance_rate"), 100),
            "verify_steps": number(found.get("spec_decode_num_drafts")),
            "drafted_tokens": number(found.get("spec_decode_draft_tokens")),
            "accepted_tokens": accepted,
            "accepted_per_position": numbers(
                found.get("spec_decode_per_position_acceptance_rates")
            ),
            "tokens_per_step": metrics.tokens_per_step(
                number(found.get("total_output_tokens")), accepted
            ),
        }
    )
