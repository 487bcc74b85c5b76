"""Result files of `vllm bench serve`, with or without `--save-detailed`.

One JSON object a run; with `--append-result` one a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crossover import metrics
from crossover.imports import bench_json, names
from crossover.imports.document import Document
from crossover.imports.run import (
    Run,
    errors,
    known,
    level,
    load_remarks,
    number,
    numbers,
    per,
    positive,
    seconds,
    text,
    unix_s,
)

NAME = "vllm bench serve"
KEYS = ("model_id", "duration", "completed", "output_throughput", "request_rate")
_ASKED = ("dataset_name", "random_input_len", "random_output_len")
"""Written by sweeps and `--metadata`; the tool itself does not say what it asked."""


def mismatch(document: Document) -> str | None:
    """Why the file is not of this format; None: it is."""
    return document.lacking(*KEYS)


def read(document: Document) -> list[Run]:
    """The runs of a file."""
    return [
        run(
            found,
            document.source(place),
            variant=text(found.get("label")) or names.variant_of(document.path),
            trial=names.trial_of(document.path),
        )
        for place, found in enumerate(document.objects)
    ]


def run(
    found: Mapping[str, Any], source: str, *, variant: str, trial: int | None, tool: str = NAME
) -> Run:
    """One result as a run; sweeps hold the same."""
    of = level(found.get("max_concurrency"), found.get("request_rate"))
    figures = bench_json.figures(found, e2e="e2el") | _speculation(found)
    latency = seconds(found.get("mean_e2el_ms"))
    rate = positive(found.get("request_throughput"))
    achieved = None if latency is None or rate is None else rate * latency  # Little's law
    ended = unix_s(found.get("date"), "%Y%m%d-%H%M%S")
    figures |= known(
        {
            "achieved_concurrency": achieved,
            "started_at": None if ended is None else ended - (number(found.get("duration")) or 0),
        }
    )
    warnings, invalid = load_remarks(of, achieved=achieved, requests=figures.get("requests"))
    return Run(
        source=source,
        tool=tool,
        variant=variant,
        concurrency=of.concurrency,
        no_level=of.no_level,
        trial=trial,
        figures=figures,
        asked=known({key: found.get(key) for key in _ASKED}),
        server=known({"model_name": text(found.get("model_id"))}),
        warnings=(*warnings, *bench_json.peak_remark(found)),
        invalid_reasons=(*errors(figures.get("completed"), figures.get("failed")), *invalid),
        requests=bench_json.request_rows(found),
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
