"""Result files as other load tools write them, with few figures: for tests of imports.

Field names and nesting are those of vLLM's serve.py and sweep/serve.py, guidellm 0.8.1 and
aiperf 0.13.0. Throughputs of `spec` are better than those of `plain` at low load only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

THROUGHPUT = {
    "plain": {1: 100.0, 4: 350.0, 16: 900.0, 64: 1500.0},
    "spec": {1: 170.0, 4: 500.0, 16: 950.0, 64: 1100.0},
}
OUTPUT_TOKENS = 128


def write(path: Path, content: Any) -> Path:
    """Write JSON, with NaN and Infinity as Python writes them, or text as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def vllm(variant: str, concurrency: int, **changes: Any) -> dict[str, Any]:
    """What `vllm bench serve --save-result` writes."""
    throughput = THROUGHPUT[variant][concurrency]
    completed = 8 * concurrency
    tpot_ms = 1000 * concurrency / throughput
    return {
        "date": "20261202-120000",
        "endpoint_type": "openai-chat",
        "backend": "openai-chat",
        "label": variant,
        "model_id": "m",
        "tokenizer_id": "m",
        "num_prompts": completed,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": concurrency,
        "duration": completed * OUTPUT_TOKENS / throughput,
        "completed": completed,
        "failed": 0,
        "total_input_tokens": completed * 256,
        "total_output_tokens": completed * OUTPUT_TOKENS,
        "request_throughput": throughput / OUTPUT_TOKENS,
        "request_goodput": None,
        "output_throughput": throughput,
        "total_token_throughput": 3 * throughput,
        "max_output_tokens_per_s": 1.2 * throughput,
        "max_concurrent_requests": 2 * concurrency,
        "mean_ttft_ms": 50.0,
        "median_ttft_ms": 40.0,
        "std_ttft_ms": 5.0,
        "p99_ttft_ms": 90.0,
        "mean_tpot_ms": tpot_ms,
        "median_tpot_ms": tpot_ms,
        "std_tpot_ms": 0.1,
        "p99_tpot_ms": 1.5 * tpot_ms,
        **changes,
    }


DETAILS = {
    "input_lens": [256, 256, 250],
    "output_lens": [3, 0, 2],
    "ttfts": [0.25, 0.0, 0.5],
    "itls": [[0.125, 0.25], [], [0.5]],
    "start_times": [10.0, 10.0, 10.5],
    "generated_texts": ["a b c", "", "a b"],
    "errors": ["", "Traceback: 503", ""],
}
"""Added by `--save-detailed`."""


def sweep(folder: Path, runs: int = 3) -> Path:
    """What `vllm bench sweep serve` leaves: every run, and the summary of each folder and of all."""
    every = []
    for variant, parameters in (("plain", {}), ("spec", {"spec-tokens": 3})):
        for concurrency in THROUGHPUT[variant]:
            place = folder / f"SERVE--{variant}-BENCH--max_concurrency={concurrency}"
            found = [
                vllm(variant, concurrency, label=None, run_number=n, **parameters)
                | {"output_throughput": THROUGHPUT[variant][concurrency] * (1 + 0.01 * n)}
                for n in range(runs)
            ]
            for n, result in enumerate(found):
                write(place / f"run={n}.json", result)
            write(place / "summary.json", found)
            write(place / "warmup.json", found[0] | {"run_number": -1, "output_throughput": 1.0})
            every += found
    columns = list(every[-1])
    lines = [",".join(["", *columns])]
    for n, result in enumerate(every):
        cells = ("" if result.get(c) is None else str(result[c]) for c in columns)
        lines.append(",".join([str(n), *cells]))
    write(folder / "summary.csv", "\n".join(lines) + "\n")
    return folder


def guidellm(variant: str, **strategies: dict[str, Any]) -> dict[str, Any]:
    """What `guidellm benchmark --output-path benchmarks.json` writes, a benchmark a level.

    `strategies` adds benchmarks of other loads by name.
    """
    loads = {
        **{
            str(c): {"type_": "concurrent", "streams": c, "max_concurrency": c}
            for c in THROUGHPUT[variant]
            if c > 1
        },
        "1": {"type_": "synchronous"},
        **strategies,
    }
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.1"},
        "args": {"model": "m", "data": ["prompt_tokens=256,output_tokens=128"], "api_key": "sk-1"},
        "benchmarks": [
            {
                "type_": "generative_benchmark",
                "config": {"strategy": strategy},
                "start_time": 1_760_000_000.0,
                "duration": 60.0,
                "metrics": _guidellm_metrics(variant, int(name) if name.isdigit() else 1),
            }
            for name, strategy in loads.items()
        ],
    }


def _guidellm_metrics(variant: str, concurrency: int) -> dict[str, Any]:
    throughput = THROUGHPUT[variant][concurrency]

    def status(mean: float) -> dict[str, Any]:
        found = {"mean": mean, "median": mean, "percentiles": {"p90": 2 * mean, "p99": 3 * mean}}
        nothing = {"mean": 0.0, "median": 0.0}
        return {"successful": found, "incomplete": nothing, "errored": nothing, "total": found}

    return {
        "request_totals": {"successful": 400, "incomplete": 2, "errored": 1, "total": 403},
        "request_concurrency": status(0.99 * concurrency),
        "request_latency": status(2.5),
        "prompt_token_count": status(256.0),
        "output_token_count": status(float(OUTPUT_TOKENS)),
        "time_to_first_token_ms": status(40.0),
        "time_per_output_token_ms": status(12.5),
        "inter_token_latency_ms": status(12.0),
        "output_tokens_per_second": status(throughput),
    }


def aiperf(variant: str, concurrency: int, **changes: Any) -> dict[str, Any]:
    """What `aiperf profile` writes to profile_export_aiperf.json."""
    throughput = THROUGHPUT[variant][concurrency]

    def metric(unit: str, average: float) -> dict[str, Any]:
        return {"unit": unit, "avg": average, "p50": average, "p90": average, "p99": average}

    return {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "request_throughput": {"unit": "requests/sec", "avg": throughput / OUTPUT_TOKENS},
        "request_latency": metric("ms", 1000 * concurrency * OUTPUT_TOKENS / throughput),
        "request_count": {"unit": "requests", "avg": 8.0 * concurrency},
        "time_to_first_token": metric("ms", 40.0),
        "inter_token_latency": metric("ms", 12.0),
        "output_token_throughput": {"unit": "tokens/sec", "avg": throughput},
        "output_sequence_length": metric("tokens", float(OUTPUT_TOKENS)),
        "input_sequence_length": metric("tokens", 256.0),
        "benchmark_duration": {"unit": "sec", "avg": 30.0},
        "start_time": "2026-12-02T12:00:00.500000",
        "was_cancelled": False,
        "input_config": {
            "models": {"items": [{"name": "m"}]},
            "phases": [
                {"name": "warmup", "concurrency": 2, "exclude_from_results": True},
                {"name": "profiling", "type": "concurrency", "concurrency": concurrency},
            ],
        },
        **changes,
    }
