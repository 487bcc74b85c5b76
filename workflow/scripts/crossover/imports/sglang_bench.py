"""Result files of SGLang's bench_serving: one JSON object a run, one a line.

Newer ones carry the server's whole resolved configuration under `server_info`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from crossover.engines import sglang
from crossover.engines.base import Description
from crossover.imports import bench_json, names
from crossover.imports.format import Format
from crossover.imports.run import (
    Run,
    known,
    level,
    mapping,
    number,
    positive,
    run_at,
    text,
    whole,
)

_LENGTHS = {
    "sharegpt": ("sharegpt_output_len",),
    "random": ("random_input_len", "random_output_len", "random_range_ratio"),
}
"""Which lengths count for which datasets (by the beginning of the name); files hold all."""

_SETTINGS = (
    *(
        "mem_fraction_static",
        "max_total_num_tokens",
        "max_running_requests",
        "chunked_prefill_size",
    ),
    *("cuda_graph_max_bs", "disable_cuda_graph", "disable_radix_cache", "attention_backend"),
    *("tp_size", "dp_size", "dtype", "quantization", "kv_cache_dtype", "tokenizer_worker_num"),
    *("disable_overlap_schedule", "schedule_policy", "page_size"),
)
"""Of `server_info`: what else decides the throughput."""


class SglangBench(Format):
    """What bench_serving appends to its `--output-file`."""

    name = "SGLang bench_serving"
    keys = ("duration", "completed", "output_throughput", "total_output_tokens_retokenized")

    def run(self, found: Mapping[str, Any], path: Path, source: str) -> Run:
        """The run of an object."""
        info = mapping(found.get("server_info"))
        acceptance = positive(found.get("accept_length"))
        own = {
            "achieved_concurrency": positive(found.get("concurrency")),
            "acceptance_length": acceptance,
        }
        return run_at(
            level(found.get("max_concurrency"), found.get("request_rate")),
            bench_json.figures(found, e2e="e2e_latency") | known(own),
            source=source,
            tool=self.name,
            variant=text(found.get("tag")) or names.variant_of(path),
            trial=names.trial_of(path),
            asked=_asked(found),
            server=_server(info),
            settings={key: info[key] for key in _SETTINGS if key in info} | _effective_cap(info),
            warnings=(
                *bench_json.peak_remark(found),
                *_length_remark(found),
                *["acceptance_of_server"] * (acceptance is not None),
            ),
            requests=bench_json.request_rows(found),
        )


def _asked(found: Mapping[str, Any]) -> dict[str, Any]:
    dataset = str(found.get("dataset_name") or "")
    lengths = next((keys for name, keys in _LENGTHS.items() if dataset.startswith(name)), ())
    return known({key: found.get(key) for key in ("dataset_name", *lengths)})


def _length_remark(found: Mapping[str, Any]) -> list[str]:
    """Output lengths that are what was asked for, where counting the text again gives others."""
    asked = number(found.get("sharegpt_output_len"))
    total, counted = (
        number(found.get(f"total_output_tokens{suffix}")) for suffix in ("", "_retokenized")
    )
    completed = number(found.get("completed"))
    if total is None or counted is None or completed is None:
        return []
    same = asked is not None and total == asked * completed
    return ["lengths_requested"] if same and counted != total else []


def _server(info: Mapping[str, Any]) -> dict[str, Any]:
    if not info:
        return {}
    speculation = text(info.get("speculative_algorithm"))
    said = _description(info)
    return known(
        {
            "engine": "sglang",
            "engine_version": text(info.get("version")),
            "model_name": text(info.get("served_model_name")) or text(info.get("model_path")),
            "model_path": text(info.get("model_path")),
            "speculation_method": speculation,
            "drafted_tokens": whole(said.drafted_tokens),
            "description": json.dumps(asdict(said)),
        }
    )


def _description(info: Mapping[str, Any]) -> Description:
    """As of a server that was asked itself; `resolved` holds what decides the throughput alone.

    One run an arm does not tell a setting from a port, a seed or a count, which are its own.
    """
    version, model = text(info.get("version")), text(info.get("served_model_name"))
    resolved = {
        key: value
        for key, value in info.items()
        if key in _SETTINGS or (key.startswith("speculative_") and value is not None)
    }
    try:
        said = sglang.description_of(info, engine_version=version, model=model)
    except (AttributeError, TypeError, ValueError):  # a server_info of another shape
        said = Description(version, model)
    return replace(said, resolved=resolved)


def _effective_cap(info: Mapping[str, Any]) -> dict[str, Any]:
    """The cap that the scheduler really has, which under speculation is set silently."""
    states = info.get("internal_states")
    state = mapping(states[0] if isinstance(states, list) and states else None)
    return known(
        {"effective_max_running_requests": state.get("effective_max_running_requests_per_dp")}
    )
