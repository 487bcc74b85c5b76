"""Tokens per second over the course of a point, from the table of requests.

A request's tokens after its first chunk are spread evenly between its first and its last token, so
that a million requests take a moment; what each event held is in chunks.parquet beside the point.
The table is read in pieces, and thinned without chance: the same table gives the same figure.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crossover.report.figure import Choice, Figure, figure_of
from crossover.report.wording import Row, number

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from crossover.axis import Axis
    from crossover.report.levels import Level

ROWS_AT_ONCE = 1_000_000

BINS_A_POINT = 120
"""Longest series of a point; a longer run has wider bins."""

BINS_A_WORKLOAD = 12_000
"""Values that a workload's figure may carry; beyond it whole rounds of points are left out."""

_BIN_WIDTHS_S = (0.25, 0.5, 1, 2, 5, 10, 20, 30, 60)
_FEWEST_BINS = 8

Place = tuple[str, str, int, float]
"""variant, workload, trial, level"""


@dataclass(frozen=True)
class Series:
    """One point over time: `tokens_per_s` in bins of `bin_s` from the start of its load."""

    bin_s: float
    tokens_per_s: np.ndarray
    window: tuple[float, float]
    """the steady window, seconds from the start of the load"""


def read_series(
    requests: str | os.PathLike[str], points: Sequence[Row], axis: Axis
) -> dict[Place, Series]:
    """The course of every point whose start and window are known and whose requests have times."""
    edges = {_place(p): _edges(p) for p in points if _is_timed(p)}
    received = {place: np.zeros(len(e) - 1) for place, e in edges.items()}
    per_chunk = {_place(p): p["tokens_per_chunk"] for p in points}
    for rows in _pieces(requests, axis):
        for place, mine in _by_point(rows, axis):
            if place in edges:
                received[place] += _received(mine, edges[place], per_chunk[place])
    timed = {_place(p): p for p in points if _is_timed(p)}
    return {
        place: Series(
            bin_s=(width := edges[place][1] - edges[place][0]),
            tokens_per_s=tokens / width,
            window=_window(timed[place]),
        )
        for place, tokens in received.items()
        if tokens.any()
    }


def _place(point: Row) -> Place:
    return point["variant"], point["workload"], point["trial"], point["level"]


def _is_timed(point: Row) -> bool:
    needed = ("started_s", "load_s", "window_start_s", "window_s")
    return all(point[name] is not None for name in needed)


def _window(point: Row) -> tuple[float, float]:
    start = point["window_start_s"] - point["started_s"]
    return start, start + point["window_s"]


def _edges(point: Row) -> np.ndarray:
    """Edges of the bins on the monotonic clock; the last bin is whole and may be cut short."""
    load_s = point["load_s"]
    enough = [w for w in _BIN_WIDTHS_S if load_s / w <= BINS_A_POINT]
    width = next((w for w in reversed(enough) if w <= 1 and load_s / w >= _FEWEST_BINS), None)
    width = width or (enough[0] if enough else _BIN_WIDTHS_S[-1])
    bins = max(1, int(load_s / width))
    return point["started_s"] + width * np.arange(bins + 1)


def _pieces(requests: str | os.PathLike[str], axis: Axis) -> Iterator[pa.Table]:
    """The columns that are needed, as whole row groups of about ROWS_AT_ONCE rows."""
    file = pq.ParquetFile(requests)
    columns = ["variant", "workload", "trial", axis.name, "status", "first_token_s"]
    columns += ["last_token_s", "output_tokens", "first_chunk_tokens", "chunks"]
    rows = itertools.accumulate(
        file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)
    )
    for _, groups in itertools.groupby(enumerate(rows), key=lambda g: g[1] // ROWS_AT_ONCE):
        yield file.read_row_groups([g for g, _ in groups], columns=columns)


def _by_point(rows: pa.Table, axis: Axis) -> Iterator[tuple[Place, dict[str, np.ndarray]]]:
    keys = ["variant", "workload", "trial", axis.name]
    columns = {n: rows[n].to_numpy() for n in rows.column_names if n not in (*keys, "status")}
    columns["ok"] = pc.equal(rows["status"], "ok").to_numpy()
    columns["failed"] = pc.equal(rows["status"], "failed").to_numpy()
    codes = [rows[n].combine_chunks().dictionary_encode() for n in keys]
    code = np.zeros(rows.num_rows, dtype=np.int64)
    for column in codes:
        code = code * len(column.dictionary) + column.indices.to_numpy()
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    for mine in np.split(order, starts[1:]):
        if len(mine):
            place = tuple(c.dictionary[c.indices[int(mine[0])].as_py()].as_py() for c in codes)
            yield place, {name: values[mine] for name, values in columns.items()}


def _received(rows: Mapping[str, np.ndarray], edges: np.ndarray, per_chunk: Any) -> np.ndarray:
    """Tokens in each bin. A request that was cut off has its chunks times the point's tokens a chunk."""
    first_s, last_s = (rows[n].astype(float) for n in ("first_token_s", "last_token_s"))
    estimate = rows["chunks"] * (np.nan if per_chunk is None else float(per_chunk))
    tokens = np.where(rows["ok"], rows["output_tokens"].astype(float), estimate)
    usable = ~rows["failed"] & np.isfinite(tokens) & np.isfinite(first_s) & np.isfinite(last_s)
    first_s, last_s, tokens = first_s[usable], last_s[usable], tokens[usable]
    at_once = np.nan_to_num(rows["first_chunk_tokens"].astype(float), nan=1.0)[usable]
    at_once = np.where(last_s > first_s, np.minimum(at_once, tokens), tokens)
    rate = np.divide(
        tokens - at_once, last_s - first_s, out=np.zeros_like(tokens), where=last_s > first_s
    )
    # ramps that begin at the first token, less ramps that begin at the last one
    cumulative = _steps(first_s, at_once, edges)
    cumulative += _ramps(first_s, rate, edges) - _ramps(last_s, rate, edges)
    return np.diff(cumulative)


def _steps(at_s: np.ndarray, size: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Sum of the sizes of what happened before each edge."""
    order = np.argsort(at_s)
    total = np.r_[0.0, np.cumsum(size[order])]
    return total[np.searchsorted(at_s[order], edges)]


def _ramps(at_s: np.ndarray, slope: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Sum of slope x (edge - start) over the ramps that began before each edge."""
    origin = edges[0]
    return _steps(at_s, slope, edges) * (edges - origin) - _steps(
        at_s, slope * (at_s - origin), edges
    )


# ------------------------------------------------------------------ the figure


def figure(
    workload: str,
    levels: Sequence[Level],
    series: Mapping[Place, Series],
    near: float | None,
    axis: Axis,
) -> Figure:
    """All variants at one level of one trial; the reader chooses which.

    Args:
        series: of all workloads.
        near: the level whose first trial is shown at first is the one nearest to this, in ln;
            None: the lowest.
    """
    rounds: dict[tuple[int, float], list[Place]] = {}
    order = {n.variant: i for i, n in enumerate(levels)}
    for place in sorted((p for p in series if p[1] == workload), key=lambda p: order[p[0]]):
        rounds.setdefault((place[2], place[3]), []).append(place)
    first = _nearest(sorted(rounds), near)
    kept, values = [], 0
    for key in sorted(rounds, key=lambda k: (k != first, k)):
        values += sum(len(series[p].tokens_per_s) for p in rounds[key])
        if kept and values > BINS_A_WORKLOAD:
            break
        kept.append(key)
    rows = [_row(place, series[place]) for key in sorted(kept) for place in rounds[key]]
    note = (
        "Strong: the steady window, between the dashed rules, which alone is counted. Pale: ramp, "
        "warm-up and drain. A request's tokens are spread evenly between its first and its last; an "
        "answer that was cut off at the end is estimated from its chunks."
    )
    if len(kept) < len(rounds):
        note += (
            f" To keep this page small, {len(kept)} of {len(rounds)} level-and-trial pairs can be "
            "chosen; requests.parquet has all."
        )
    return figure_of(
        "timeline",
        workload,
        levels,
        axis=axis,
        title="Throughput over time",
        note=note,
        finding=_finding(rows, first, axis)
        if rows
        else "The times of the requests are not on record.",
        variants=list(dict.fromkeys(r["variant"] for r in rows)),
        means=rows,
        choice=Choice(
            "Point",
            [(_key(key), f"{axis.at(key[1])}, trial {key[0]}") for key in _by_level(kept)],
            _key(first),
        )
        if rows
        else None,
    )


def _by_level(keys: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return sorted(keys, key=lambda k: (k[1], k[0]))


def _nearest(keys: Sequence[tuple[int, float]], near: float | None) -> tuple[int, float]:
    """Of the first trial, the level nearest to `near` in ln; of no keys, a key of nothing."""
    of_first_trial = [k for k in keys if k[0] == keys[0][0]]
    if near is None:
        return next(iter(of_first_trial), (0, 0.0))
    return min(of_first_trial, key=lambda k: abs(np.log(k[1] / near)), default=(0, 0.0))


def _key(key: tuple[int, float]) -> str:
    return f"{key[1]:g}/{key[0]}"


def _row(place: Place, series: Series) -> dict[str, Any]:
    variant, _, trial, level = place
    start, end = series.window
    inside = _inside(series)
    mean = float(inside.mean()) if len(inside) else None
    return {
        "variant": variant,
        "key": _key((trial, level)),
        "start": round(start, 3),
        "end": round(end, 3),
        "bin": series.bin_s,
        "t": [round(series.bin_s * (i + 0.5), 3) for i in range(len(series.tokens_per_s))],
        "value": [float(f"{v:.4g}") for v in series.tokens_per_s.tolist()],
        "said": f"{number(mean)} tokens/s in the window",
    }


def _inside(series: Series) -> np.ndarray:
    """The bins that lie wholly in the window."""
    starts = series.bin_s * np.arange(len(series.tokens_per_s))
    return series.tokens_per_s[
        (starts >= series.window[0]) & (starts + series.bin_s <= series.window[1])
    ]


def _finding(rows: Sequence[Row], first: tuple[int, float], axis: Axis) -> str:
    said = "; ".join(f"{r['variant']} {r['said']}" for r in rows if r["key"] == _key(first))
    return f"At {axis.at(first[1])}, trial {first[0]}: {said}."
