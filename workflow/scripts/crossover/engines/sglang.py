"""SGLang: `sglang serve`, with flags, routes and metrics of SGLang 0.5.17 to 0.5.23.

Measured with 0.5.17: `generation_tokens_total` and `spec_verify_calls_total` move when a request
ends and leave cancelled ones out, `realtime_tokens_total` moves with the steps. A verify call
yields its accepted drafts and one token more, so accepted tokens are generated ones less verify
calls. `--speculative-num-draft-tokens` is the verify width: it contains that one token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from crossover.credentials import without_secrets
from crossover.engines import prometheus
from crossover.engines.base import Counters, Description, Engine, Gauges
from crossover.engines.flags import flags, refuse_own, whole_number, without_shell_values
from crossover.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crossover.campaign import Model, Variant

OWN_FLAGS = ("model-path", "model", "served-model-name", "host", "port", "enable-metrics")
"""Flags that `command` sets itself."""


class Sglang(Engine):
    """SGLang's HTTP server; `binary` names another `sglang` than the one on the PATH."""

    name = "sglang"
    program = "sglang"
    core_processes = r"sglang::scheduler"
    takes = frozenset({"binary"})
    reads_variables = ("SGLANG_", "SGL_")
    speculation_settings = "spec|draft|eagle|simulate_acc"
    acceptance_settings = "simulate_acc"
    no_settings = r"(startup_time|internal_states)\b|(max_total_num_tokens|max_req_input_len)$"

    def command(self, variant: Variant, model: Model) -> list[str]:
        """`sglang serve` with the variant's own flags, metrics switched on.

        Raises:
            CampaignError: the variant sets what the workflow sets.
        """
        refuse_own(variant.args, OWN_FLAGS)
        return [
            *(variant.binary or self.program, "serve"),
            *("--model-path", "{model}", "--served-model-name", "{model_name}"),
            *("--host", "127.0.0.1", "--port", "{port}", "--enable-metrics"),
            *flags(variant.args),
        ]

    def describe(self, http: httpx.Client) -> Description:
        """What /server_info and /v1/models say.

        Raises:
            EngineError: the answers are not SGLang's.
        """
        try:
            model = http.get("/v1/models").raise_for_status().json()["data"][0]["id"]
            info = _server_info(http)
            version = info["version"]
        except (httpx.HTTPStatusError, ValueError, KeyError, IndexError, TypeError) as error:
            raise EngineError(
                f"{http.base_url}: /server_info and /v1/models are not SGLang's ({error!r}); "
                "is another program answering on this port?"
            ) from error
        return description_of(info, engine_version=f"sglang {version}", model=model)

    def counters(self, http: httpx.Client) -> Counters:
        """Counts of ended requests; a restart of them by a cache reset lies before a point."""
        metrics = prometheus.fetch(http)
        if metrics is None:
            return Counters()
        generated = metrics.total("sglang:generation_tokens_total")
        verified = metrics.total("sglang:spec_verify_calls_total")
        return Counters(
            output_tokens=generated,
            decoded_tokens=metrics.by_label("sglang:realtime_tokens_total", "mode").get("decode"),
            prompt_tokens=metrics.total("sglang:prompt_tokens_total"),
            cached_prompt_tokens=metrics.total("sglang:cached_tokens_total"),
            verify_steps=verified,
            accepted_tokens=None if None in (generated, verified) else generated - verified,
            preemptions=metrics.total("sglang:num_retracted_requests_total"),
        )

    def gauges(self, http: httpx.Client) -> Gauges:
        """The load as of the last log interval (40 decode steps by default)."""
        metrics = prometheus.fetch(http)
        if metrics is None:
            return Gauges()
        return Gauges(
            running_requests=metrics.total("sglang:num_running_reqs"),
            queued_requests=metrics.total("sglang:num_queue_reqs"),
            kv_cache_usage=metrics.largest("sglang:token_usage"),
        )

    def reset_cache(self, http: httpx.Client) -> bool | None:
        """True: flushed; False: refused, since requests are running. Zeroes acceptance counters."""
        response = http.post("/flush_cache")
        return None if response.status_code in (404, 405) else response.is_success

    def drafted_tokens(self, variant: Variant) -> int | None:
        """Drafted tokens a step, without the verify width's bonus token; None without speculation."""
        written = without_shell_values(variant.args)
        args = {key.lstrip("-").replace("-", "_"): value for key, value in written.items()}
        if not args.get("speculative_algorithm"):
            return super().drafted_tokens(variant)
        for key in ("speculative_num_steps", "speculative_num_draft_tokens"):
            if args.get(key) is not None:
                args[key] = whole_number(key.replace("_", "-"), args[key])
        drafted = _drafted(args)
        return super().drafted_tokens(variant) if drafted is None else drafted

    def policy_in_own_terms(self, ranges: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
        """Flags, and the contents of the JSON file that the last of them is to name.

        The file's keys are batch sizes from which one candidate holds. The steps at the start
        must be a candidate. EAGLE and EAGLE3 with one candidate a step only; elsewhere the
        server falls back to fixed steps with no more than a warning.
        """
        return {
            "speculative-num-steps": ranges[0][2],
            "speculative-eagle-topk": 1,
            "speculative-adaptive": True,
            "speculative-adaptive-config": {
                str(first): {"candidate_steps": [drafted]} for first, _, drafted in ranges
            },
        }


def description_of(
    info: Mapping[str, Any], *, engine_version: str | None, model: str | None
) -> Description:
    """What /server_info says, in the words of all engines."""
    algorithm = info.get("speculative_algorithm")
    return Description(
        engine_version=engine_version,
        model=model,
        max_running_requests=_max_running(info),
        kv_tokens=info.get("max_total_num_tokens"),
        memory_fraction=info.get("mem_fraction_static"),
        graph_max_requests=_graph_max_requests(info),
        chunked_prefill_tokens=_chunked_prefill_tokens(info),
        speculation_method=algorithm or "none",
        drafted_tokens=_drafted(info) if algorithm else None,
        prefix_cache=not info["disable_radix_cache"] if "disable_radix_cache" in info else None,
        front_end_processes=info.get("tokenizer_worker_num"),
        resolved=without_secrets(info),
    )


def _drafted(settings: Mapping[str, Any]) -> int | None:
    """Tokens that a chain of drafts holds; None where the length adapts or is not told.

    With one candidate a step the width is forced to steps + 1, so the steps decide.
    """
    if settings.get("speculative_adaptive"):
        return None
    steps, width = (
        settings.get("speculative_num_steps"),
        settings.get("speculative_num_draft_tokens"),
    )
    if steps is not None and settings.get("speculative_eagle_topk") in (None, 1, "1"):
        return int(steps)
    return None if width is None else int(width) - 1


def _server_info(http: httpx.Client) -> dict[str, Any]:
    response = http.get("/server_info")
    if response.status_code == 404:  # before it was renamed
        response = http.get("/get_server_info")
    return response.raise_for_status().json()


def _max_running(info: Mapping[str, Any]) -> int | None:
    """Requests that really run at once: the schedulers' own number, over all data-parallel ranks.

    With speculation and the setting left out, a silent cap of 48 stands here.
    """
    states = info.get("internal_states") or []
    effective = [state.get("effective_max_running_requests_per_dp") for state in states]
    if effective and None not in effective:
        return int(sum(effective))
    return info.get("max_running_requests")


def _graph_max_requests(info: Mapping[str, Any]) -> int | None:
    """The largest captured batch of decode steps; batches are counted in requests."""
    if info.get("disable_cuda_graph") or info.get("disable_decode_cuda_graph"):
        return 0
    return info.get("cuda_graph_max_bs_decode", info.get("cuda_graph_max_bs"))


def _chunked_prefill_tokens(info: Mapping[str, Any]) -> int | None:
    size = info.get("chunked_prefill_size")
    return size if size is None else max(size, 0)  # -1: off
