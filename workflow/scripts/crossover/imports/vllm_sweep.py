"""Results of `vllm bench sweep serve`: `run=N.json`, `summary.json` or `summary.csv`.

What a run holds besides the figures of `vllm bench serve` are the sweep's own parameters. The
variant is the server's part of them, which the folder's name separates from the load's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crossover.imports import names
from crossover.imports.document import Document
from crossover.imports.run import whole
from crossover.imports.vllm_bench import VllmBench

_FOLDER = re.compile(r"SERVE--(?P<serve>.+?)(?:-BENCH--.*)?")
_WARMUP = -1
_FIGURE = re.compile(
    r"(mean|median|std|p[\d.]+)_\w+_ms|(total|max|spec_decode|probe|random|sharegpt|ramp_up)_\w+|"
    r"\w*throughput|\w+_(lens|times|texts)|Unnamed.*|"
)
_RUN = {
    *VllmBench.keys,
    *("date", "endpoint_type", "backend", "label", "tokenizer_id", "num_prompts", "burstiness"),
    *("failed", "request_goodput", "run_number", "dataset_name", "ttfts", "itls", "latencies"),
    *("errors", "rtfx", "seed", "_benchmark_name", "num_warmups", "rps_change_events"),
}
"""Keys of a run that say nothing about the server."""


class VllmSweep(VllmBench):
    """A run, or a table of them."""

    name = "vllm bench sweep"
    keys = (*VllmBench.keys, "run_number")

    def mismatch(self, document: Document) -> str | None:
        """Why the file is not of this format; None: it is."""
        if document.rows is None:
            return super().mismatch(document)
        missing = [key for key in self.keys if key not in document.columns]
        return f"table without {', '.join(missing)}" if missing else None

    def parts(self, document: Document) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """All runs but a sweep's warm-up, which is none."""
        for place, found in enumerate(document.objects or document.rows):
            if whole(found["run_number"]) != _WARMUP:
                yield document.source(place), found

    def variant(self, found: Mapping[str, Any], path: Path) -> str:
        """The server's part of the folder's name, or of the run's own parameters."""
        if folder := _FOLDER.fullmatch(path.absolute().parent.name):
            return folder["serve"]
        own = {
            key: value
            for key, value in found.items()
            if key not in _RUN and not _FIGURE.fullmatch(key) and value != ""
        }
        said = [f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in sorted(own.items())]
        return "-".join(said) or names.variant_of(path)

    def trial(self, found: Mapping[str, Any], path: Path) -> int:
        """The sweep's own count, which begins at 0."""
        return (whole(found["run_number"]) or 0) + 1
