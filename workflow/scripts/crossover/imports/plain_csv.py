"""A plain table: `config,concurrency,throughput_tok_s`, a row a run.

Optional columns: `trial`, `workload`, and latencies such as `ttft_p50_ms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from crossover.errors import ResultFileError
from crossover.imports.document import Document
from crossover.imports.format import Format
from crossover.imports.run import Run, known, number, positive, seconds, whole

_LATENCY = re.compile(r"(ttft|tpot|itl|e2e)_(mean|p50|p90|p99)_ms")
_THROUGHPUT = "throughput_tok_s"
_SETTINGS = ("config", "concurrency", "trial", "workload")

_MISSING = {"nan", "inf", "infinity", "n/a", "na", "-", "–", "none", "null"}
"""Ways to write that there is no value."""


def _is_figure(column: str) -> bool:
    return column == _THROUGHPUT or _LATENCY.fullmatch(column) is not None


class PlainCsv(Format):
    """A table with a throughput or a latency."""

    name = "CSV"

    def mismatch(self, document: Document) -> str | None:
        """Why the file is no such table; None: it is."""
        if document.rows is None:
            return document.no_json if document.objects is None else "JSON"
        missing = [name for name in ("config", "concurrency") if name not in document.columns]
        if not any(map(_is_figure, document.columns)):
            missing.append(f"{_THROUGHPUT} (or a latency such as tpot_p50_ms)")
        if missing:
            return f"its first line lacks {', '.join(missing)}"
        return None if document.rows else "no rows"

    def parts(self, document: Document) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Every row that is not empty, by its line, without what stands beyond the columns."""
        for line, row in enumerate(document.rows, start=2):
            if any(row.values()):
                yield f"{document.path}:{line}", {c: v for c, v in row.items() if c}

    def run(self, found: Mapping[str, str], path: Path, source: str) -> Run:
        """The run of a row.

        Raises:
            ResultFileError: names the line and column of a value that is no number.
        """
        concurrency = whole(found["concurrency"])
        if concurrency is None or concurrency < 1:
            raise ResultFileError(
                f"{source}: concurrency is {found['concurrency']!r}; give the requests in flight, "
                "a whole number from 1 up"
            )
        figures = {column: value for column, value in found.items() if _is_figure(column)}
        for column, value in figures.items():
            if value and number(value) is None and value.strip().lower() not in _MISSING:
                raise ResultFileError(f"{source}: {column} is {value!r}, no number; leave it empty")
        throughput = figures.pop(_THROUGHPUT, None)
        latencies = {
            column.removesuffix("_ms").replace("_", "_s_", 1): seconds(value)
            for column, value in figures.items()
        }
        tpot = latencies.get("tpot_s_p50")
        unused = [c for c in found if c not in _SETTINGS and not _is_figure(c)]
        return Run(
            source=source,
            tool=self.name,
            variant=(found["config"] or "").strip() or "unnamed",
            concurrency=concurrency,
            trial=whole(found.get("trial")),
            figures=known(
                {
                    "output_throughput_tokens_per_s": positive(throughput),
                    "decode_rate_tokens_per_s": None if tpot is None else 1 / tpot,
                    **latencies,
                }
            ),
            asked=known({"workload": found.get("workload") or None}),
            warnings=(f"columns_unused: {', '.join(unused)}",) if unused else (),
        )
