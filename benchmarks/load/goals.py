"""What the load client is to reach, beside what it reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from load.clients import Crossover

_SAID = ("stamp_source", "merged_events", "connect_s_mean", "client_cpu_share", "clock_drift_us")
_RUST = ("vllm-rust", "sglang-rust")


def lines(rows: Sequence[dict[str, Any]], ours: Sequence[Crossover]) -> Iterator[str]:
    """The goals in words, each with its figure; those that were not measured are left out."""
    for row in (row for row in rows if row["client"] == Crossover.name):
        if row["request_rate"] is not None:
            yield f"\n{row['request_rate']:g} requests/s"
            p99_ms = row["send_slip_p99_ms"]
            yield _line(5, "send slip p99", f"{p99_ms:.2f} ms", "1 ms", p99_ms <= 1)
            continue
        level = {
            other["client"]: other
            for other in rows
            if (other["concurrency"], other["itl_ms"]) == (row["concurrency"], row["itl_ms"])
        }
        concurrency, rate = row["concurrency"], row["concurrency"] / row["itl_ms"] * 1000
        yield f"\nC={concurrency}, {rate:,.0f} events/s"
        if rate <= 25_000:
            yield from _at_usual_rates(row, level)
        else:
            merged = row["merged_share"]
            yield _line(6, "merged share", f"{merged:.3%}", "0.1%", merged < 0.001)
    for client in ours:
        known = {column: client.point[column] for column in _SAID}
        missing = [column for column, value in known.items() if value is None]
        yield f"\ngoal 7: a result says {', '.join(f'{k} {v}' for k, v in known.items())}"
        yield f"  {'missing: ' + ', '.join(missing) if missing else 'met'}"


def _at_usual_rates(row: dict[str, Any], level: dict[str, dict[str, Any]]) -> Iterator[str]:
    concurrency = row["concurrency"]
    p50, p99 = row["stamp_error_p50_us"], row["stamp_error_p99_us"]
    yield _line(1, "stamp error p50", f"{p50:.1f} µs", "5 µs", p50 <= 5)
    yield _line(1, "stamp error p99", f"{p99:.1f} µs", "25 µs", p99 <= 25)
    if floor := level.get("floor"):
        ratio = row["run_cpu_us_per_token_event"] / floor["run_cpu_us_per_token_event"]
        yield _line(2, "run phase / C client", f"{ratio:.2f}", "1.7", ratio <= 1.7)
    whole = row["cpu_us_per_token_event"]
    if concurrency == 100:
        yield _line(2, "whole process, CPU an event", f"{whole:.1f} µs", "15 µs", whole <= 15)
    for name in _RUST:
        if peer := level.get(name):
            theirs = peer["cpu_us_per_token_event"]
            yield _line(2, f"… against {name}", f"{whole:.1f} µs", f"{theirs:.1f}", whole < theirs)
    limit_ms = 0.5 if concurrency == 100 else 3.0
    error_ms = row["ttft_error_ms"]
    near = abs(error_ms) <= limit_ms
    yield _line(3, "mean TTFT error", f"{error_ms:+.2f} ms", f"{limit_ms} ms", near)
    start_s, result_s = row["start_s"], row["last_token_to_result_s"]
    yield _line(4, "process start to first request", f"{start_s:.2f} s", "0.15 s", start_s <= 0.15)
    yield _line(4, "last token to result", f"{result_s:.2f} s", "0.3 s", result_s <= 0.3)


def _line(goal: int, what: str, measured: str, limit: str, met: bool) -> str:
    return f"  goal {goal}: {what} {measured} (at most {limit}): {'met' if met else 'not met'}"
