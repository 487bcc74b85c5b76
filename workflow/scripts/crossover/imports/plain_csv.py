"""A plain table: `config,concurrency,throughput_tok_s`, a row a run.

Optional columns: `trial`, `workload`, and latencies such as `ttft_p50_ms`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from crossover.errors import ResultFileError
from crossover.imports.document import Document
from crossover.imports.run import Run, known, number, positive, seconds, whole

NAME = "CSV"
_LATENCY = re.compile(r"(ttft|tpot|itl|e2e)_(mean|p50|p90|p99)_ms")
_THROUGHPUT = "throughput_tok_s"


def mismatch(document: Document) -> str | None:
    """Why the file is not of this format; None: it is."""
    if document.rows is None:
        return document.no_json if document.objects is None else "JSON"
    missing = [name for name in ("config", "concurrency") if name not in document.columns]
    if not any(name == _THROUGHPUT or _LATENCY.fullmatch(name) for name in document.columns):
        missing.append(f"{_THROUGHPUT} (or a latency such as tpot_p50_ms)")
    if missing:
        return f"its first line lacks {', '.join(missing)}"
    return None if document.rows else "no rows"


def read(document: Document) -> list[Run]:
    """The runs of a table.

    Raises:
        ResultFileError: names the line and column of a value that is no number.
    """
    used = {"config", "concurrency", "trial", "workload", _THROUGHPUT}
    unused = [c for c in document.columns if c not in used and not _LATENCY.fullmatch(c)]
    remarks = (f"columns_unused: {', '.join(unused)}",) if unused else ()
    return [
        _run(row, document, line, remarks)
        for line, row in enumerate(document.rows, start=2)
        if any(value for value in row.values())
    ]


def _run(row: Mapping[str, str], document: Document, line: int, remarks: tuple[str, ...]) -> Run:
    source = f"{document.path}:{line}"
    concurrency = whole(row["concurrency"])
    if concurrency is None or concurrency < 1:
        raise ResultFileError(
            f"{source}: concurrency is {row['concurrency']!r}; give the requests in flight, "
            "a whole number from 1 up"
        )
    figures = {
        name: value
        for name, value in row.items()
        if name == _THROUGHPUT or (name and _LATENCY.fullmatch(name))
    }
    for name, value in figures.items():
        if value and number(value) is None and value.strip().lower() not in _MISSING:
            raise ResultFileError(f"{source}: {name} is {value!r}, no number; leave it empty")
    latencies = {
        f"{name[:-3].replace('_', '_s_', 1)}": seconds(value)
        for name, value in figures.items()
        if name != _THROUGHPUT
    }
    tpot = latencies.get("tpot_s_p50")
    return Run(
        source=source,
        tool=NAME,
        variant=(row["config"] or "").strip() or "unnamed",
        concurrency=concurrency,
        trial=whole(row.get("trial")),
        figures=known(
            {
                "output_throughput_tokens_per_s": positive(row.get(_THROUGHPUT)),
                "decode_rate_tokens_per_s": None if tpot is None else 1 / tpot,
                **latencies,
            }
        ),
        asked=known({"workload": row.get("workload") or None}),
        warnings=remarks,
    )


_MISSING = {"nan", "inf", "infinity", "n/a", "na", "-", "–", "none", "null"}
"""Ways to write that there is no value."""
