"""What a load brought, as the rows of a point, of its requests and of their chunks."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

from crossover import metrics, records, validity
from crossover.load import window
from crossover.load.arrivals import LEAST_SCHEDULED_COMPLETED
from crossover.load.decode import Answer, chunk_row, request_row

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from crossover.load.client import LoadRun
    from crossover.measure import Readings, Samples

_MIN_SAMPLES = 3


@dataclass(frozen=True)
class MeasuredPoint:
    """A measured point: its row of `records.POINTS`, and its requests and chunks.

    The row has every column; those of the GPU, the digests, protocol and commit are still None.
    """

    point: dict[str, Any]
    requests: pa.Table
    chunks: pa.Table

    def write_tables(self, folder: Path) -> None:
        """Write `requests.parquet` and `chunks.parquet`."""
        records.write_parquet(self.requests, folder / "requests.parquet")
        records.write_parquet(self.chunks, folder / "chunks.parquet")


def measured(
    where: Mapping[str, Any],
    run: LoadRun,
    readings: Readings,
    cache_reset: bool | None,
    samples: Samples,
    fixed_length: int | None,
) -> MeasuredPoint:
    """The point of a run.

    Args:
        where: see `measure.measure_point`, as `samples`.
        run: what the load left.
        readings: of the engine's counters.
        cache_reset: see `records.POINTS`.
        samples: the supervisor's.
        fixed_length: output tokens that every answer was to have; None: it ends by itself.
    """
    answers, concurrency = run.answers, where.get("concurrency")
    tokens = window.tokens_of(answers)
    window_ns = _steady_window(run, answers, tokens, concurrency)
    rows = [request_row(answer, window_ns) for answer in answers]
    point = {
        **dict.fromkeys(column.name for column in records.POINTS),
        **where,
        **_of_run(run),
        **_of_requests(rows, answers),
        **_of_tokens(run, tokens),
        **_of_engine(readings),
        "received_share": _received_share(tokens, readings),
        "fixed_output_tokens": fixed_length,
        "cache_reset": cache_reset,
        "in_flight_limit_reached": run.overloaded if concurrency is None else None,
    }
    if window_ns is not None:
        start_s, end_s = (ns / 1e9 for ns in window_ns)
        point |= _of_window(tokens, window_ns)
        point |= _of_clients(run, rows, concurrency, start_s, end_s)
        point |= columns_of_samples(samples(start_s, end_s), end_s - start_s)
    point |= validity.judge(point)
    return MeasuredPoint(
        point,
        records.to_table(({**where, **row} for row in rows), records.REQUESTS),
        records.to_table((chunk_row(a) for a in answers if a.sizes), records.CHUNKS),
    )


def _steady_window(
    run: LoadRun, answers: Sequence[Answer], tokens: window.Tokens, concurrency: int | None
) -> tuple[int, int] | None:
    """The run's window without what MSER-5 drops; as many completions as it must have remain."""
    if run.window_ns is None:
        return None
    start_ns, end_ns = run.window_ns
    ends = sorted(a.exchange.end_ns for a in answers if a.status == "ok")
    inside = [ns for ns in ends if start_ns <= ns < end_ns]
    floor = LEAST_SCHEDULED_COMPLETED if concurrency is None else 2 * concurrency
    latest_ns = inside[-floor] if len(inside) >= floor else start_ns
    return window.steady_start_ns(tokens, start_ns, end_ns, latest_ns), end_ns


def _of_run(run: LoadRun) -> dict[str, Any]:
    load_s = (run.ended_ns - run.started_ns) / 1e9
    return {
        "started_at": run.started_at,
        "started_s": run.started_ns / 1e9,
        "load_s": load_s,
        "client_cpu_share": run.cpu_s / load_s,
        "in_flight_max": run.in_flight_max,
        "stamp_source": run.stamp_source,
        "connect_s_mean": metrics.mean(run.connect_s),
        "clock_drift_us": run.clock_drift_us,
    }


def _of_requests(rows: Sequence[Mapping[str, Any]], answers: Sequence[Answer]) -> dict[str, Any]:
    by_status = Counter(row["status"] for row in rows)
    good = [row for row in rows if row["status"] == "ok"]
    measured = [
        (row, answer)
        for row, answer in zip(rows, answers, strict=True)
        if row["status"] == "ok" and row["in_window"]
    ]
    ttfts = [metrics.ttft_s(_start_s(row), row["first_token_s"]) for row, _ in measured]
    tpots = [
        metrics.tpot_s(
            row["first_token_s"],
            row["last_token_s"],
            row["output_tokens"],
            row["first_chunk_tokens"],
        )
        for row, _ in measured
    ]
    tpots = [t for t in tpots if t is not None]
    itls = [gap for _, answer in measured for gap in metrics.itl_s(answer.stamps_ns)]
    e2es = [metrics.e2e_s(_start_s(row), row["end_s"]) for row, _ in measured]
    lengths = [row["output_tokens"] for row in good]
    prompt_tokens = [n for row in good if (n := row["prompt_tokens"]) is not None]
    cached = [row for row in good if None not in (row["cached_tokens"], row["prompt_tokens"])]
    cacheable = sum(row["prompt_tokens"] for row in cached)
    chunks = sum(row["chunks"] for row in good)
    return {
        "requests": len(rows),
        "completed": by_status["ok"],
        "failed": by_status["failed"],
        "cancelled": by_status["cancelled"],
        "error_share": metrics.error_share(by_status["failed"], by_status["ok"]),
        "errors_by_class": dict(Counter(r["error_class"] for r in rows if r["error_class"])),
        "resent": sum(row["resent"] > 0 for row in rows),
        "prompt_tokens_mean": metrics.mean(prompt_tokens),
        "output_tokens_mean": metrics.mean(lengths),
        "output_tokens_min": min(lengths, default=None),
        "output_tokens_max": max(lengths, default=None),
        "looped_share_mean": metrics.mean([row["looped_share"] for row in good]),
        "cached_tokens_share": sum(row["cached_tokens"] for row in cached) / cacheable
        if cacheable
        else None,
        "distinct_prompts": len({row["prompt_id"] for row in rows}),
        **metrics.summary("ttft_s", ttfts),
        **metrics.summary("tpot_s", tpots),
        **metrics.summary("itl_s", itls),
        **metrics.summary("e2e_s", e2es),
        "decode_rate_tokens_per_s": metrics.decode_rate_tokens_per_s(tpots),
        "tokens_per_chunk": sum(r["output_tokens"] for r in good) / chunks if chunks else None,
        "events": sum(row["chunks"] for row in rows),
        "merged_events": sum(sum(answer.merged) for answer in answers),
    }


def _start_s(row: Mapping[str, Any]) -> float:
    return metrics.start_s(row["scheduled_s"], row["sent_s"])


def _of_tokens(run: LoadRun, tokens: window.Tokens) -> dict[str, Any]:
    received = math.fsum(tokens.count)
    return {
        "received_output_tokens": received,
        "whole_run_tokens_per_s": received * 1e9 / (run.ended_ns - run.started_ns),
        "token_times_source": tokens.source if received else None,
    }


def _of_window(tokens: window.Tokens, window_ns: tuple[int, int]) -> dict[str, Any]:
    start_ns, end_ns = window_ns
    window_s = (end_ns - start_ns) / 1e9
    tokens = tokens.inside(start_ns, end_ns)
    inside = math.fsum(tokens.count)
    counts = window.bins(tokens, start_ns, end_ns)
    return {
        "window_start_s": start_ns / 1e9,
        "window_s": window_s,
        "output_throughput_tokens_per_s": inside / window_s,
        "estimated_tokens_share": math.fsum(compress(tokens.count, tokens.estimated)) / inside
        if inside
        else None,
        "halves_difference_se": window.halves_difference_se(counts),
        "cv_within": window.cv_within(counts),
    }


def _of_clients(
    run: LoadRun,
    rows: Sequence[Mapping[str, Any]],
    concurrency: int | None,
    start_s: float,
    end_s: float,
) -> dict[str, Any]:
    """How well the load was kept up in the window."""
    ends = [row["end_s"] for row in rows if row["status"] == "ok"]
    window_s = end_s - start_s
    in_flight = metrics.achieved_concurrency(
        [(_start_s(row), row["end_s"]) for row in rows], start_s, end_s
    )
    closed = concurrency is not None
    slips = (_slips_after_answers_s if closed else _slips_of_schedule_s)(rows, start_s, end_s)
    return {
        "warmup_completed": sum(end < start_s for end in ends),
        "window_completed": sum(start_s <= end < end_s for end in ends),
        "achieved_concurrency": in_flight,
        "backlog_growth": None if closed else backlog_growth(rows, in_flight, start_s, end_s),
        **metrics.summary("send_slip_s", slips),
        "send_slip_share": metrics.ratio(
            sum(slips), (concurrency if closed else in_flight) * window_s
        ),
        "client_stall_s_max": max(run.stalls_s, default=0.0),
        "client_stalled_share": sum(run.stalls_s) / window_s,
    }


def _slips_after_answers_s(
    rows: Sequence[Mapping[str, Any]], start_s: float, end_s: float
) -> list[float]:
    """From the end of each good answer in [start, end) to its client's next send.

    After a failure a client waits on purpose, which is no slip.
    """
    slips, ended_s = [], {}
    for row in rows:  # in order of sending
        if (earlier_s := ended_s.pop(row["client"], None)) is not None:
            slips.append(row["sent_s"] - earlier_s)
        if row["status"] == "ok" and start_s <= row["end_s"] < end_s:
            ended_s[row["client"]] = row["end_s"]
    return slips


def _slips_of_schedule_s(
    rows: Sequence[Mapping[str, Any]], start_s: float, end_s: float
) -> list[float]:
    """From when each request in [start, end) was due to its sending."""
    return [
        row["sent_s"] - row["scheduled_s"] for row in rows if start_s <= row["scheduled_s"] < end_s
    ]


def backlog_growth(
    rows: Sequence[Mapping[str, Any]], in_flight: float, start_s: float, end_s: float
) -> float:
    """By how much requests in flight grew over the window, in standard deviations.

    In flight at two moments far apart are two numbers which, where the server keeps up with
    Poisson arrivals, vary about as Poisson numbers do: their difference by sqrt(2 x mean).
    """
    due = sum(start_s <= row["scheduled_s"] < end_s for row in rows)
    ended = sum(start_s <= row["end_s"] < end_s for row in rows)
    return (due - ended) / math.sqrt(1 + 2 * in_flight)


def _of_engine(readings: Readings) -> dict[str, Any]:
    """The engine's own counts over the whole point; tokens per step in the window.

    Where the counters were not read at both ends of the window or did not move in it, tokens per
    step is that of the whole point.
    """
    whole = readings.between("before", "after")
    inside = readings.between("open", "close")
    in_window = metrics.tokens_per_step(inside.output_tokens, inside.accepted_tokens)
    return {
        "engine_output_tokens": whole.output_tokens,
        "verify_steps": whole.verify_steps,
        "drafted_tokens": whole.drafted_tokens,
        "accepted_tokens": whole.accepted_tokens,
        "acceptance_length": metrics.acceptance_length(whole.accepted_tokens, whole.verify_steps),
        "acceptance_rate": metrics.acceptance_rate(whole.accepted_tokens, whole.drafted_tokens),
        "tokens_per_step": in_window
        or metrics.tokens_per_step(whole.output_tokens, whole.accepted_tokens),
        "accepted_per_position": metrics.share_per_position(
            whole.accepted_per_position, whole.verify_steps
        ),
        "preemptions": whole.preemptions,
    }


def _received_share(tokens: window.Tokens, readings: Readings) -> float | None:
    """Tokens received / tokens decoded, between the two readings at the ends of the window.

    Below 1 where a front end lags behind its engine; None where the engine does not count tokens
    as it makes them.
    """
    decoded = readings.between("open", "close").decoded_tokens
    if not decoded:
        return None
    inside = tokens.inside(readings.read_ns["open"], readings.read_ns["close"])
    return math.fsum(inside.count) / decoded


def columns_of_samples(
    known: Sequence[Mapping[str, float | None]], window_s: float
) -> dict[str, Any]:
    """Columns of a point from the supervisor's samples in its window; None: not told.

    Sums that only rise, such as energy, are rates between the first and the last sample; over the
    window that rate is taken to hold.
    """

    def values(name: str) -> list[float]:
        return [s[name] for s in known if s.get(name) is not None]

    def rate(name: str) -> float | None:
        ends = [s for s in known if s.get(name) is not None]
        if len(ends) < 2:
            return None
        return metrics.rate(ends[0][name], ends[-1][name], ends[-1]["t"] - ends[0]["t"])

    def median(name: str) -> float | None:
        found = values(name)
        return statistics.median(found) if len(found) >= _MIN_SAMPLES else None

    def rate_by_process(name: str) -> dict[str, float]:
        """Of the processes that are in the first and in the last sample."""
        ends = [s for s in known if s.get(name)]
        if len(ends) < 2:
            return {}
        first, last = ends[0], ends[-1]
        return {
            process: metrics.rate(first[name][process], last[name][process], last["t"] - first["t"])
            for process in sorted(first[name].keys() & last[name].keys())
        }

    front_end = rate_by_process("front_end_cpu_s")
    busiest = max(front_end, key=front_end.get, default=None)
    busy, cores = rate("machine_busy_s"), values("machine_cores")
    drawn_w = rate("gpu_energy_j")
    return {
        "running_requests_mean": metrics.mean(values("running_requests")),
        "queued_requests_mean": metrics.mean(values("queued_requests")),
        "running_requests_p50": median("running_requests"),
        "queued_requests_p50": median("queued_requests"),
        "kv_cache_usage_max": max(values("kv_cache_usage"), default=None),
        "server_cpu_share": rate("server_cpu_s"),
        "front_end_cpu_share_max": front_end.get(busiest),
        "front_end_busiest": busiest,
        "machine_cpu_share": busy / cores[0] if busy is not None and cores else None,
        "gpu_power_w_mean": metrics.mean(values("gpu_power_w")),
        "gpu_energy_j": None if drawn_w is None else drawn_w * window_s,
        "gpu_memory_bytes_max": max(values("gpu_memory_bytes"), default=None),
        "gpu_sm_clock_mhz_mean": metrics.mean(values("gpu_sm_clock_mhz")),
        "gpu_power_throttled_share": metrics.mean(values("gpu_power_throttled")),
        "gpu_heat_throttled_share": metrics.mean(values("gpu_heat_throttled")),
    }
