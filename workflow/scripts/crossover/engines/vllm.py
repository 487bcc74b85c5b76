"""vLLM: `vllm serve`, with flags and metrics of vLLM 0.25 to 0.33.

Counters move with every step and are sums over engines and API servers. Drafted tokens do not
contain the bonus token. A verify step is counted for a request that had drafts in that step.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx

from crossover.credentials import without_secrets
from crossover.engines import prometheus
from crossover.engines.base import Counters, Description, Engine, Gauges
from crossover.engines.flags import flags, refuse_own, whole_number, without_shell_values
from crossover.errors import CampaignError, EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crossover.campaign import Model, Variant

OWN_FLAGS = ("model", "served-model-name", "host", "port")
"""Flags that `command` sets itself."""

SPECULATION = ("speculative-config", "speculative_config")


class Vllm(Engine):
    """vLLM's OpenAI server; `binary` names another `vllm` than the one on the PATH."""

    name = "vllm"
    program = "vllm"
    core_processes = r"VLLM::(EngineCore|Worker)"
    takes = frozenset({"binary"})
    reads_variables = ("VLLM_", "FLASHINFER_")
    # Graph sizes are counted in tokens, so that they follow the number of drafts. A step's tokens
    # are limited for drafts alone, and methods without a model on the GPU switch asynchronous
    # scheduling off, of which /server_info shows only what follows for data parallelism.
    speculation_settings = (
        "spec|draft|cudagraph_capture_sizes|max_cudagraph_capture_size"
        "|max_num_scheduled_tokens|disable_nccl_for_dp_synchronization"
    )
    acceptance_settings = "speculative.config.synthetic_acceptance"
    no_settings = r"cache_config\.(kv_cache_max_concurrency|kv_cache_size_tokens|num_gpu_blocks)$"

    def command(self, variant: Variant, model: Model) -> list[str]:
        """`vllm serve` with the variant's own flags.

        Raises:
            CampaignError: the variant sets what the workflow sets.
        """
        refuse_own(variant.args, OWN_FLAGS)
        return [
            variant.binary or self.program,
            *("serve", "{model}", "--served-model-name", "{model_name}"),
            *("--host", "127.0.0.1", "--port", "{port}"),
            *flags(variant.args),
        ]

    def environment(self, variant: Variant) -> dict[str, str]:
        """Development routes: the cache reset and the server's own account of its settings."""
        return {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}

    def describe(self, http: httpx.Client) -> Description:
        """What /version, /v1/models, /server_info and /metrics say.

        Raises:
            EngineError: the answers are not vLLM's.
        """
        try:
            version = http.get("/version").raise_for_status().json()["version"]
            model = http.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        except (httpx.HTTPStatusError, ValueError, KeyError, IndexError, TypeError) as error:
            raise EngineError(
                f"{http.base_url}: /version and /v1/models are not vLLM's ({error!r}); "
                "is another program answering on this port?"
            ) from error
        config = _config(http)
        scheduler = config.get("scheduler_config") or {}
        cache = {**(config.get("cache_config") or {}), **_cache_info(http)}
        speculation = config.get("speculative_config")
        parallel = config.get("parallel_config") or {}
        drafted = speculation.get("num_speculative_tokens") if speculation else None
        return Description(
            engine_version=f"vllm {version}",
            model=model,
            max_running_requests=scheduler.get("max_num_seqs"),
            kv_tokens=_kv_tokens(cache),
            memory_fraction=_number(cache.get("gpu_memory_utilization")),
            graph_max_requests=_graph_max_requests(config, drafted or 0),
            chunked_prefill_tokens=_chunked_prefill_tokens(scheduler),
            speculation_method=speculation.get("method")
            if speculation
            else "none"
            if config
            else None,
            drafted_tokens=drafted,
            prefix_cache=_truth(cache.get("enable_prefix_caching")),
            front_end_processes=parallel.get("_api_process_count"),
            resolved=without_secrets(config),
        )

    def counters(self, http: httpx.Client) -> Counters:
        """Sums since the server's start."""
        metrics = prometheus.fetch(http)
        if metrics is None:
            return Counters()
        return Counters(
            output_tokens=metrics.total("vllm:generation_tokens_total"),
            prompt_tokens=metrics.total("vllm:prompt_tokens_total"),
            cached_prompt_tokens=metrics.total("vllm:prefix_cache_hits_total"),
            verify_steps=metrics.total("vllm:spec_decode_num_drafts_total"),
            drafted_tokens=metrics.total("vllm:spec_decode_num_draft_tokens_total"),
            accepted_tokens=metrics.total("vllm:spec_decode_num_accepted_tokens_total"),
            accepted_per_position=metrics.by_position(
                "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            ),
            preemptions=metrics.total("vllm:num_preemptions_total"),
        )

    def gauges(self, http: httpx.Client) -> Gauges:
        """Requests in the engine, waiting for it, and the busiest engine's cache use."""
        metrics = prometheus.fetch(http)
        if metrics is None:
            return Gauges()
        return Gauges(
            running_requests=metrics.total("vllm:num_requests_running"),
            queued_requests=metrics.total("vllm:num_requests_waiting"),
            kv_cache_usage=metrics.largest("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        )

    def reset_cache(self, http: httpx.Client) -> bool | None:
        """True or False as the answer's `success` says; None where it says nothing.

        Versions before `success` was introduced answer 200 with an empty body, whatever happened;
        without the development routes the answer is 404.
        """
        response = http.post("/reset_prefix_cache")
        if response.status_code in (404, 405):
            return None
        if response.is_error:
            return False
        try:
            return response.json()["success"] is True
        except (ValueError, KeyError, TypeError):
            return None

    def drafted_tokens(self, variant: Variant) -> int | None:
        """`num_speculative_tokens` of the speculative configuration; None without one."""
        args = without_shell_values(variant.args)
        config = next((args[k] for k in SPECULATION if args.get(k)), None)
        if config is None:
            return super().drafted_tokens(variant)
        if isinstance(config, str):
            try:
                config = json.loads(config)
            except ValueError:
                raise CampaignError(
                    f"args.speculative-config: {config[:60]!r} is no JSON; write it as a mapping"
                ) from None
        if not isinstance(config, dict):
            raise CampaignError(
                f"args.speculative-config: {config!r} is no mapping, such as "
                "{method: ngram, num_speculative_tokens: 4}"
            )
        drafted = config.get("num_speculative_tokens")
        if drafted is None:
            return super().drafted_tokens(variant)
        return whole_number("speculative-config.num_speculative_tokens", drafted)

    def policy_in_own_terms(self, ranges: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
        """Keys of the speculative configuration: draft tokens by ranges of the batch size.

        The ranges include both ends; beyond the last one its number holds (vLLM PR #32374).
        """
        return {
            "speculative-config": {
                "num_speculative_tokens": max(drafted for *_, drafted in ranges),
                "num_speculative_tokens_per_batch_size": [list(one) for one in ranges],
            }
        }


def _config(http: httpx.Client) -> dict[str, Any]:
    """The resolved configuration; empty where the server does not tell."""
    try:
        # the first answer takes seconds: the server collects facts about its machine for it
        response = http.get("/server_info", params={"config_format": "json"}, timeout=60)
        config = response.raise_for_status().json()["vllm_config"]
    except (httpx.HTTPStatusError, httpx.TimeoutException, ValueError, KeyError, TypeError):
        return {}
    return config if isinstance(config, dict) else {}


def _cache_info(http: httpx.Client) -> dict[str, str]:
    """The labels of vllm:cache_config_info that say something."""
    metrics = prometheus.fetch(http)
    rows = metrics.samples.get("vllm:cache_config_info", ()) if metrics else ()
    labels: Mapping[str, str] = rows[0][0] if rows else {}
    return {key: value for key, value in labels.items() if value not in ("", "None")}


def _kv_tokens(cache: Mapping[str, Any]) -> int | None:
    try:
        return int(cache["num_gpu_blocks"]) * int(cache["block_size"])
    except (KeyError, ValueError, TypeError):
        return None


def _truth(value: Any) -> bool | None:
    """A bool, or a metric label's "True" or "False"."""
    return {"True": True, "False": False}.get(str(value))


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _graph_max_requests(config: Mapping[str, Any], drafted: int) -> int | None:
    """Requests in the largest captured step; a request has its drafts and one token in it."""
    if (config.get("model_config") or {}).get("enforce_eager") is True:
        return 0
    largest = (config.get("compilation_config") or {}).get("max_cudagraph_capture_size")
    return None if largest is None else int(largest) // (1 + drafted)


def _chunked_prefill_tokens(scheduler: Mapping[str, Any]) -> int | None:
    chunked = scheduler.get("enable_chunked_prefill")
    return scheduler.get("max_num_batched_tokens") if chunked else None if chunked is None else 0
