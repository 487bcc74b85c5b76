"""Results of `vllm bench sweep serve`: `run=N.json`, `summary.json` or `summary.csv`.

What a run holds besides the figures of `vllm bench serve` are the sweep's own parameters. The
variant is the server's part of them, which the folder's name separates from the load's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossover.imports import names, vllm_bench
from crossover.imports.document import Document
from crossover.imports.run import Run, whole

NAME = "vllm bench sweep"
_FOLDER = re.compile(r"SERVE--(?P<serve>.+?)(?:-BENCH--.*)?")
_WARMUP = -1
_FIGURE = re.compile(
    r"(mean|median|std|p[\d.]+)_\w+_ms|(total|max|spec_decode|probe|random|sharegpt|ramp_up)_\w+|"
    r"\w*throughput|\w+_(lens|times|texts)|Unnamed.*|"
)
_RUN = {
    *vllm_bench.KEYS,
    *("date", "endpoint_type", "backend", "label", "tokenizer_id", "num_prompts", "burstiness"),
    *("failed", "request_goodput", "run_number", "dataset_name", "ttfts", "itls", "latencies"),
    *("errors", "rtfx", "seed", "_benchmark_name", "num_warmups", "rps_change_events"),
}
"""Keys of a run that say nothing about the server."""


def mismatch(document: Document) -> str | None:
    """Why the file is not of this format; None: it is."""
    keys = (*vllm_bench.KEYS, "run_number")
    if document.rows is None:
        return document.lacking(*keys)
    missing = [key for key in keys if key not in document.columns]
    return f"table without {', '.join(missing)}" if missing else None


def read(document: Document) -> list[Run]:
    """The runs of a file; a sweep's warm-up is none."""
    found = document.objects or document.rows
    return [
        vllm_bench.run(
            result,
            document.source(place),
            variant=_variant(result, document.path),
            trial=number + 1,
            tool=NAME,
        )
        for place, result in enumerate(found)
        for number in [whole(result["run_number"]) or 0]
        if number != _WARMUP
    ]


def _variant(result: Mapping[str, Any], path: Path) -> str:
    if folder := _FOLDER.fullmatch(path.absolute().parent.name):
        return folder["serve"]
    own = {
        key: value
        for key, value in result.items()
        if key not in _RUN and not _FIGURE.fullmatch(key) and value != ""
    }
    said = [f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in sorted(own.items())]
    return "-".join(said) or names.variant_of(path)
