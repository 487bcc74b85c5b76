"""From the files of points and sessions to the three tables of a campaign."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from crossover.records import (
    POINTS,
    REQUESTS,
    SESSIONS,
    arrow_schema,
    replacing,
    to_table,
    write_parquet,
)
from crossover.server import session


def summarise(point_files: Iterable[str], *, points: str, requests: str, sessions: str) -> None:
    """Write the tables of records.POINTS, REQUESTS and SESSIONS.

    Args:
        point_files: `point.json` of every point; its requests and sessions stand beside it.
        points, requests, sessions: the Parquet files to write.
    """
    files = [Path(f) for f in point_files]
    write_parquet(to_table((json.loads(f.read_text()) for f in files), POINTS), points)
    _concatenate([f.with_name("requests.parquet") for f in files], requests)
    folders = sorted({f.parents[3] / "sessions" for f in files})
    rows = [_session_row(record) for folder in folders for record in sorted(folder.glob("*.jsonl"))]
    write_parquet(to_table(sorted(rows, key=lambda r: r["started_at"]), SESSIONS), sessions)


def _concatenate(parts: list[Path], path: str) -> None:
    """One file of many, a row group a part: never more than one part is in memory."""
    schema = arrow_schema(REQUESTS)
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for part in parts:
            writer.write_table(pq.read_table(part).cast(schema))


def _session_row(record: Path) -> dict[str, Any]:
    facts = session.read(record)
    columns = {c.name for c in SESSIONS}
    return {name: value for name, value in facts.items() if name in columns}
