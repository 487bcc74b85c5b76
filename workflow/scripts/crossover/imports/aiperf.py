"""Summaries of aiperf: `profile_export_aiperf.json`, one run a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crossover import metrics
from crossover.imports import names
from crossover.imports.format import Format
from crossover.imports.run import Run, known, level, mapping, positive, run_at, unix_s

_QUANTITIES = {
    "ttft_s": "time_to_first_token",
    "tpot_s": "inter_token_latency",  # (latency - TTFT) / (tokens - 1): TPOT here
    "itl_s": "inter_chunk_latency",
    "e2e_s": "request_latency",
}
_STATISTICS = {"mean": "avg", "p50": "p50", "p90": "p90", "p99": "p99"}
_UNITS = {"ms": 1e-3, "sec": 1.0, "s": 1.0, "us": 1e-6, "ns": 1e-9}


class Aiperf(Format):
    """`profile_export_aiperf.json`."""

    name = "aiperf"
    keys = ("request_throughput", "output_token_throughput", "input_config")

    def run(self, found: Mapping[str, Any], path: Path, source: str) -> Run:
        """The run of a summary."""
        incomplete = found.get("was_cancelled") or found.get("is_complete") is False
        return run_at(
            level(*_load(found["input_config"])),
            _figures(found),
            source=source,
            tool=self.name,
            variant=names.variant_of(path),
            trial=names.trial_of(path),
            asked=_asked(found["input_config"]),
            server=known({"model_name": _model(found["input_config"])}),
            invalid_reasons=["run_incomplete"] if incomplete else [],
        )


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    def average(name: str) -> float | None:
        return positive(mapping(found.get(name)).get("avg"))

    throughput, completed = average("output_token_throughput"), average("request_count")
    failed = average("error_request_count") or (None if completed is None else 0.0)
    latencies = {
        f"{ours}_{q}": _seconds(found.get(theirs), statistic)
        for ours, theirs in _QUANTITIES.items()
        for q, statistic in _STATISTICS.items()
    }
    latency, rate = latencies["e2e_s_mean"], average("request_throughput")
    tpot = latencies["tpot_s_p50"]
    return known(
        {
            "output_throughput_tokens_per_s": throughput,
            "whole_run_tokens_per_s": throughput,
            "load_s": average("benchmark_duration"),
            "started_at": unix_s(found.get("start_time")),
            "completed": completed,
            "failed": failed,
            "requests": None if completed is None else completed + failed,
            "error_share": None if completed is None else metrics.error_share(failed, completed),
            "achieved_concurrency": None if latency is None or rate is None else latency * rate,
            "prompt_tokens_mean": average("input_sequence_length"),
            "output_tokens_mean": average("output_sequence_length"),
            "decode_rate_tokens_per_s": None if tpot is None else 1 / tpot,
            **latencies,
        }
    )


def _seconds(metric: Any, statistic: str) -> float | None:
    metric = mapping(metric)
    value, unit = positive(metric.get(statistic)), _UNITS.get(str(metric.get("unit")))
    return None if value is None or unit is None else value * unit


def _load(config: Any) -> tuple[Any, Any]:
    """(cap on requests in flight, request rate): of the measured phase, or of `loadgen`, as older
    versions have it.
    """
    config = mapping(config)
    phases = [p for p in _mappings(config.get("phases")) if not p.get("exclude_from_results")]
    measured = phases[-1] if phases else mapping(config.get("loadgen"))
    return measured.get("concurrency"), measured.get("rate", measured.get("request_rate"))


def _asked(config: Any) -> dict[str, Any]:
    """What does not change with the level; the number of prompts does."""
    config = mapping(config)
    dataset = next(iter(_mappings(config.get("datasets"))), {})
    prompts = mapping(dataset.get("prompts"))
    return known(
        {
            "dataset": dataset.get("path") or dataset.get("dataset") or dataset.get("type"),
            **{key: _mean(prompts.get(key)) for key in ("isl", "osl")},
        }
    )


def _mean(length: Any) -> Any:
    return length.get("mean") if isinstance(length, Mapping) else length


def _model(config: Any) -> str | None:
    config = mapping(config)
    items = mapping(config.get("models")).get("items")
    named = [item["name"] for item in _mappings(items) if "name" in item]
    older = mapping(config.get("endpoint")).get("model_names")
    return ", ".join(map(str, named or (older if isinstance(older, list) else []))) or None


def _mappings(value: Any) -> Iterable[Mapping[str, Any]]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, Mapping)]
