"""Goodput: requests a second that meet all objectives, from the table of requests.

It is computed here and not while measuring, so that another objective judges anew and measures
nothing. The table is read in pieces: 10⁷ requests need no more memory than 10⁶.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.parquet as pq

from crossover.axis import AXES
from crossover.verdict_metrics import METRICS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from crossover.campaign import Slo

ROWS_AT_ONCE = 1_000_000

PLACE = ("variant", "workload", "trial")
"""With the level, what tells a point from the others of its campaign."""

TIMES = ("scheduled_s", "sent_s", "first_token_s", "last_token_s", "end_s")


def with_goodput(points: pd.DataFrame, requests: str | os.PathLike[str], slo: Slo) -> pd.DataFrame:
    """Points with the column of the metric goodput, requests/s.

    Counted are the requests that *ended* in the steady window, over its length: whoever ends in
    it was wholly served under the level's load, whichever arm is slower, while of those sent in
    it the slowest are still in flight when it closes. A request counts if it succeeded and meets
    every objective given: TTFT ≤ ttft_s (from when it was
    scheduled, in an open loop), (last - first token)/(output tokens - those of the
    first chunk) ≤ tpot_s, end - sending ≤ e2e_s. An answer of one chunk has no time per token,
    and meets tpot_s.

    Null: the point has no request in the table, its window is not known,
    or a success lacks what an objective needs. 0 is a result.

    Args:
        points: rows of `records.POINTS`.
        requests: Parquet file of `records.REQUESTS`.
        slo: the objectives.
    """
    names = set(pq.read_schema(requests).names)
    keys = [*PLACE, *(axis for axis in AXES if axis in names and axis in points)]
    windows = points[[*keys, "window_start_s", "window_s"]].astype(
        {"window_start_s": float, "window_s": float}
    )
    counted = [_counts(rows.merge(windows, on=keys), keys, slo) for rows in _pieces(requests, keys)]
    column = METRICS["goodput"].column
    if not counted:
        return points.assign(**{column: float("nan")})
    totals = pd.concat(counted).groupby(level=keys, dropna=False).sum().reset_index()
    joined = points.merge(totals, on=keys, how="left", validate="one_to_one")
    rate = joined["good"] / joined["window_s"].where(joined["window_s"] > 0)
    return joined.assign(**{column: rate.where(joined["unknown"] == 0)}).drop(
        columns=["good", "unknown"]
    )


def _pieces(requests: str | os.PathLike[str], keys: list[str]) -> Iterator[pd.DataFrame]:
    """The requests' columns that are needed, as whole row groups of about ROWS_AT_ONCE rows."""
    file = pq.ParquetFile(requests)
    columns = [*keys, *TIMES, "status", "output_tokens", "first_chunk_tokens"]
    rows = 0

    def piece(group: int) -> int:
        nonlocal rows
        rows += file.metadata.row_group(group).num_rows
        return rows // ROWS_AT_ONCE

    for _, groups in itertools.groupby(range(file.num_row_groups), key=piece):
        table = file.read_row_groups(list(groups), columns=columns)
        yield table.to_pandas(strings_to_categorical=True).astype(
            {key: object for key in keys if key in ("variant", "workload")}
        )


def _counts(rows: pd.DataFrame, keys: list[str], slo: Slo) -> pd.DataFrame:
    """By point: good requests, and those of which it is not known whether they are."""
    start, length = rows["window_start_s"], rows["window_s"]
    ended = (rows["end_s"] >= start) & (rows["end_s"] < start + length)
    succeeded = ended & (rows["status"] == "ok")
    good, unknown = succeeded.copy(), start.isna() | length.isna()
    decoded = rows["output_tokens"] - rows["first_chunk_tokens"]
    per_token_s = (rows["last_token_s"] - rows["first_token_s"]) / decoded.where(decoded != 0)
    start_s = rows["scheduled_s"].astype(float).fillna(rows["sent_s"])
    values = {
        "ttft_s": rows["first_token_s"] - start_s,
        "tpot_s": per_token_s.mask(decoded == 0, 0.0),
        "e2e_s": rows["end_s"] - start_s,
    }
    for name, value in values.items():
        objective = getattr(slo, name)
        if objective is not None:
            good &= value <= objective
            unknown |= succeeded & value.isna()
    return (
        rows[keys].assign(good=good, unknown=unknown).groupby(keys, dropna=False, sort=False).sum()
    )
