"""From the files of points and sessions to the three tables of a campaign."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crossover.files import replacing
from crossover.records import (
    POINTS,
    REQUESTS,
    SESSIONS,
    arrow_schema,
    to_table,
    write_parquet,
)
from crossover.server import session

ROW_GROUP = 50_000
"""Rows of a row group of the table of requests, at least: smaller ones cost more to write than to
fill."""


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
    records = [record for folder in folders for record in sorted(folder.glob("*.jsonl"))]
    # a record whose first line a full disk or a power cut left incomplete tells of no session
    rows = [row for row in map(_session_row, records) if "started_at" in row]
    write_parquet(to_table(sorted(rows, key=lambda r: r["started_at"]), SESSIONS), sessions)


def _concatenate(parts: list[Path], path: str) -> None:
    """One file of many, a row group at a time: never more than one group is in memory."""
    schema = arrow_schema(REQUESTS)
    repeated = [c.name for c in REQUESTS if c.type == pa.string() and c.name != "text_digest"]
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd", use_dictionary=repeated) as writer,
    ):
        for tables in _row_groups(parts):
            # a column that is newer than the point is null
            group = pa.concat_tables([schema.empty_table(), *tables], promote_options="default")
            writer.write_table(group.select(schema.names).cast(schema))


def _row_groups(parts: Iterable[Path]) -> Iterator[list[pa.Table]]:
    """The parts in turn, as many at once as have ROW_GROUP rows; a larger one alone."""
    tables: list[pa.Table] = []
    for part in parts:
        with pq.ParquetFile(part) as file:
            tables.append(file.read(use_threads=False))
        if sum(table.num_rows for table in tables) >= ROW_GROUP:
            yield tables
            tables = []
    if tables:
        yield tables


def _session_row(record: Path) -> dict[str, Any]:
    facts = session.read(record)
    columns = {c.name for c in SESSIONS}
    return {name: value for name, value in facts.items() if name in columns}
