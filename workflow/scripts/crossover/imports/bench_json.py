"""What the result files of `vllm bench serve` and of SGLang's bench_serving have in common.

Both descend from one script: the same names for throughput, latencies in milliseconds, and lists
with an entry a request where details were saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crossover import metrics
from crossover.imports.run import known, number, numbers, per, positive, seconds, whole

_LATENCIES = {"ttft_s": "ttft", "tpot_s": "tpot", "itl_s": "itl"}
_STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p99": "p99"}


def figures(found: Mapping[str, Any], *, e2e: str) -> dict[str, Any]:
    """Columns of records.POINTS that a file gives; `e2e` is its name of the whole latency."""
    completed, duration = number(found.get("completed")), number(found.get("duration"))
    failed = number(found.get("failed"))
    if failed is None and number(found.get("num_prompts")) is not None and completed is not None:
        failed = max(0.0, number(found["num_prompts"]) - completed)
    throughput = positive(found.get("output_throughput"))
    tpot = seconds(found.get("median_tpot_ms"))
    latencies = {
        f"{ours}_{q}": seconds(found.get(f"{statistic}_{theirs}_ms"))
        for ours, theirs in {**_LATENCIES, "e2e_s": e2e}.items()
        for q, statistic in _STATISTICS.items()
    }
    return known(
        {
            "output_throughput_tokens_per_s": throughput,
            "whole_run_tokens_per_s": throughput,
            "load_s": duration,
            "completed": completed,
            "failed": failed,
            "requests": None if completed is None or failed is None else completed + failed,
            "error_share": None
            if completed is None or failed is None
            else metrics.error_share(failed, completed),
            "prompt_tokens_mean": per(found.get("total_input_tokens"), completed),
            "output_tokens_mean": per(found.get("total_output_tokens"), completed),
            "decode_rate_tokens_per_s": None if tpot is None else 1 / tpot,
            **latencies,
        }
    )


def peak_remark(found: Mapping[str, Any]) -> list[str]:
    """A peak below the average: it counts chunks, which hold several tokens under speculation."""
    peak, average = (
        positive(found.get("max_output_tokens_per_s")),
        positive(found.get("output_throughput")),
    )
    return ["peak_below_average"] if peak and average and peak < average else []


def request_rows(found: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Rows of records.REQUESTS where details were saved; times are None without start times."""
    columns = ("ttfts", "itls", "input_lens", "output_lens", "errors", "start_times", "latencies")
    lists = {name: found[name] for name in columns if isinstance(found.get(name), list)}
    if "ttfts" not in lists:
        return ()
    return tuple(
        _request(
            place, {name: values[place] for name, values in lists.items() if place < len(values)}
        )
        for place in range(len(lists["ttfts"]))
    )


def _request(place: int, saved: Mapping[str, Any]) -> dict[str, Any]:
    message = saved.get("errors") or None
    gaps = numbers(saved.get("itls")) or []
    sent, ttft, latency = (
        positive(saved.get(name)) for name in ("start_times", "ttfts", "latencies")
    )
    answered = message is None and sent is not None and ttft is not None
    last = sent + ttft + sum(gaps) if answered else None
    return {
        "request_id": place,
        "sent_s": sent,
        "first_token_s": sent + ttft if answered else None,
        "last_token_s": last,
        "end_s": sent + latency if answered and latency is not None else last,
        "status": "failed" if message else "ok",
        "error_message": None if message is None else str(message)[:200],
        "prompt_tokens": whole(saved.get("input_lens")),
        "output_tokens": None if message else whole(saved.get("output_lens")),
        "chunks": None if message or "itls" not in saved else len(gaps) + 1,
    }
