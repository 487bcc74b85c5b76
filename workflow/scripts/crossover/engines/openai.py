"""Any server that speaks the OpenAI protocol: running already, or started by a given command."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from crossover.engines import programs, prometheus
from crossover.engines.base import Counters, Description, Engine, Gauges
from crossover.engines.flags import is_left_open, refuse_unknown
from crossover.errors import CampaignError, EngineError
from crossover.load import proxies

if TYPE_CHECKING:
    import httpx

    from crossover.campaign import Model, Variant


class OpenAI(Engine):
    """`variant.url` names a running server; `variant.command` starts one that we also stop."""

    name = "openai"
    takes = frozenset({"command", "stop", "url"})
    # of those that are started this way
    reads_variables = ("VLLM_", "SGLANG_", "SGL_", "FLASHINFER_", "TRTLLM_", "LMDEPLOY_", "TGI_")
    # the protocol knows no health route: only our own streamed request shows that it is ready
    health_path = None

    def command(self, variant: Variant, model: Model) -> list[str] | None:
        """The variant's own command; None: the server runs already.

        Raises:
            CampaignError: not exactly one of `command` and `url` is given, or one is unusable.
        """
        if (variant.command is None) == (variant.url is None):
            given = "both" if variant.url else "neither"
            raise CampaignError(
                f"command or url: {given} is given; engine openai needs exactly one: the command "
                "that starts the server, or the address of one that is already running"
            )
        if variant.args:
            raise CampaignError(
                f"args: {', '.join(variant.args)} given; engine openai knows no flags: write them "
                "into `command`, or give them to the server that runs at `url`"
            )
        if variant.url is not None:
            if variant.url.rstrip("/").endswith("/v1"):
                raise CampaignError(f"url: {variant.url!r} must be given without its /v1")
            try:
                urlsplit(variant.url).port  # noqa: B018  it is looked at only here
            except ValueError as error:
                raise CampaignError(f"url: {variant.url!r} is no address: {error}") from None
            if variant.stop is not None:
                raise CampaignError(
                    "stop: given with url; a server that is not started is not stopped"
                )
            return None
        refuse_unknown("command", variant.command)
        refuse_unknown("stop", variant.stop or ())
        if not any("{port}" in word for word in variant.command):
            raise CampaignError(
                f"command: {' '.join(variant.command)!r} has no {{port}}; the server must listen "
                "on the port that it is given there"
            )
        return list(variant.command)

    def check_installed(self, variant: Variant) -> None:
        """Raise EngineError unless the programs of `command` and `stop` are there.

        Raises:
            MeasurementError: the server at `url` would be reached through a proxy.
        """
        if variant.url:
            proxies.refuse(variant.url)
        for key, words in (("command", variant.command), ("stop", variant.stop)):
            if words and not is_left_open(words[0]):
                programs.refuse_missing(key, words[0], "give its path, or install it")

    def describe(self, http: httpx.Client) -> Description:
        """The model that it serves first, and its list of models, if it gives one."""
        response = http.get("/v1/models")
        try:
            models = response.json()["data"]
            name = models[0]["id"]
        except (ValueError, KeyError, TypeError, IndexError):
            return Description()
        return Description(model=name, resolved={"models": models})

    def counters(self, http: httpx.Client) -> Counters:
        """What /metrics counts under the names of vLLM, SGLang or llama.cpp, if it does."""
        metrics = _metrics(http)
        if metrics is None:
            return Counters()
        read = metrics.total
        return Counters(
            output_tokens=read(
                "vllm:generation_tokens_total",
                "sglang:generation_tokens_total",
                "llamacpp:tokens_predicted_total",
            ),
            prompt_tokens=read(
                "vllm:prompt_tokens_total",
                "sglang:prompt_tokens_total",
                "llamacpp:prompt_tokens_total",
            ),
            cached_prompt_tokens=read("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
            verify_steps=read(
                "vllm:spec_decode_num_drafts_total",
                "sglang:spec_verify_calls_total",
                "llamacpp:spec_decode_num_drafts_total",
            ),
            drafted_tokens=read(
                "vllm:spec_decode_num_draft_tokens_total",
                "llamacpp:spec_decode_num_draft_tokens_total",
            ),
            accepted_tokens=read(
                "vllm:spec_decode_num_accepted_tokens_total",
                "llamacpp:spec_decode_num_accepted_tokens_total",
            ),
            accepted_per_position=metrics.by_position(
                "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
            ),
            preemptions=read("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
        )

    def gauges(self, http: httpx.Client) -> Gauges:
        """The load as /metrics gives it under the names of vLLM, SGLang or llama.cpp."""
        metrics = _metrics(http)
        if metrics is None:
            return Gauges()
        return Gauges(
            running_requests=metrics.total(
                "vllm:num_requests_running",
                "sglang:num_running_reqs",
                "llamacpp:requests_processing",
            ),
            queued_requests=metrics.total(
                "vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"
            ),
            kv_cache_usage=metrics.largest("vllm:kv_cache_usage_perc", "sglang:token_usage"),
        )


def _metrics(http: httpx.Client) -> prometheus.Metrics | None:
    """None where /metrics is no Prometheus text: a gateway may answer there with anything."""
    try:
        return prometheus.fetch(http)
    except EngineError:
        return None
