"""llama.cpp: the xllamacpp wheel's server, or a native `llama-server` named as `binary:`.

Measured with b11549: prompt tokens are counted when a prompt has been computed, output tokens and
all of speculation when the request ends – also when it ends because the client went away, and then
what was generated until then. Over a window they are off by the requests in flight at its edges,
over a drained point they are exact.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING, Any

from crossover.engines import llamacpp_server, programs, prometheus
from crossover.engines.base import Counters, Description, Engine, Gauges
from crossover.engines.flags import flags, refuse_own, whole_number, without_shell_values
from crossover.errors import CampaignError, EngineError

if TYPE_CHECKING:
    import httpx

    from crossover.campaign import Model, Variant, Workload

OWN_FLAGS = ("model", "alias", "host", "port")
OWN_SHORT_FLAGS = ("m", "a")
"""Flags that `command` sets itself."""

DRAFT_LENGTHS = {
    "ngram-simple": ("spec-ngram-simple-size-m", 48),
    "ngram-map-k": ("spec-ngram-map-k-size-m", 48),
    "ngram-map-k4v": ("spec-ngram-map-k4v-size-m", 48),
    "ngram-mod": ("spec-ngram-mod-n-max", 64),
    "draft": ("spec-draft-n-max", 3),
}
"""For a `--spec-type`: the flag of its longest draft, and llama-server's default for it."""


class LlamaCpp(Engine):
    """llama.cpp's HTTP server; a client above its `--parallel` slots waits in its queue."""

    name = "llamacpp"
    takes = frozenset({"binary"})
    reads_variables = ("GGML_", "LLAMA_")
    speculation_settings = r"spec|draft|^-md$|^-ngld$|^-devd$"
    acceptance_settings = "spec-synthetic-acceptance"

    def command(self, variant: Variant, model: Model) -> list[str]:
        """The server's command, with `{port}`, `{model}` and the like left open.

        Raises:
            CampaignError: the variant sets what the workflow sets, or the model has no file.
        """
        refuse_own(variant.args, (*OWN_FLAGS, *OWN_SHORT_FLAGS))
        if model.path is None:
            raise CampaignError(
                f"model: {model.name!r} has no path; engine llamacpp needs a GGUF file"
            )
        server = (
            [variant.binary] if variant.binary else ["{python}", "{engines}/llamacpp_server.py"]
        )
        known = flags(without_shell_values(variant.args))
        if not variant.binary and (wrong := llamacpp_server.problem(["--model", "", *known])):
            raise CampaignError(f"args: {wrong}")
        return [
            *server,
            *("--model", "{model}", "--alias", "{model_name}"),
            *("--host", "127.0.0.1", "--port", "{port}", "--metrics", "--slots"),
            *flags(variant.args),
        ]

    def check_installed(self, variant: Variant) -> None:
        """Raise EngineError unless the wheel, or the variant's binary, is there."""
        if variant.binary:
            advice = "give the path of a llama-server, or leave `binary` out for the wheel"
            programs.refuse_missing("binary", variant.binary, advice)
        elif importlib.util.find_spec("xllamacpp") is None:
            raise EngineError(
                "xllamacpp is not installed; "
                "pip install xllamacpp==2026.10.11549, or name a llama-server as `binary`"
            )

    def request_fields(self, workload: Workload) -> dict[str, Any]:
        """Prompts are computed in full: slots would reuse what their last request began with."""
        return {"cache_prompt": False}

    def describe(self, http: httpx.Client) -> Description:
        """What /props, /slots and /v1/models say.

        `kv_tokens` is slots times context of a slot; under `--kv-unified`, where each slot may
        use all, that is more than there is. Of speculation the server says whether, not which:
        /props gives the type "none" even when it is on (b11549).

        Raises:
            EngineError: an answer is not llama.cpp's.
        """
        try:
            props = http.get("/props").raise_for_status().json()
            model = http.get("/v1/models").raise_for_status().json()["data"][0]
            slots = props["total_slots"]
            slot_context = props["default_generation_settings"]["n_ctx"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise EngineError(
                f"{http.base_url}: /props and /v1/models are not llama.cpp's ({error!r}); "
                "is another program answering on this port?"
            ) from error
        speculates = _speculates(http)
        return Description(
            engine_version=_version(props.get("build_info", "")),
            model=model["id"],
            max_running_requests=slots,
            kv_tokens=slots * slot_context,
            speculation_method=None if speculates is None else "on" if speculates else "none",
            resolved={
                # media_marker is drawn anew at each start
                "props": {key: value for key, value in props.items() if key != "media_marker"},
                "model": model.get("meta"),
            },
        )

    def counters(self, http: httpx.Client) -> Counters:
        """Counts of ended requests; those of speculation are missing before b10519."""
        metrics = prometheus.fetch(http)
        if metrics is None:
            return Counters()
        return Counters(
            output_tokens=metrics.total("llamacpp:tokens_predicted_total"),
            prompt_tokens=metrics.total("llamacpp:prompt_tokens_total"),
            cached_prompt_tokens=metrics.total("llamacpp:prompt_tokens_cached_total"),
            verify_steps=metrics.total("llamacpp:spec_decode_num_drafts_total"),
            drafted_tokens=metrics.total("llamacpp:spec_decode_num_draft_tokens_total"),
            accepted_tokens=metrics.total("llamacpp:spec_decode_num_accepted_tokens_total"),
            accepted_per_position=metrics.by_position(
                "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
            ),
        )

    def gauges(self, http: httpx.Client) -> Gauges:
        """Busy slots, requests waiting for one, and the cache use that older builds tell."""
        metrics = prometheus.fetch(http)
        if metrics is None:
            return Gauges()
        return Gauges(
            running_requests=metrics.total("llamacpp:requests_processing"),
            queued_requests=metrics.total("llamacpp:requests_deferred"),
            kv_cache_usage=metrics.total("llamacpp:kv_cache_usage_ratio"),
        )

    def drafted_tokens(self, variant: Variant) -> int | None:
        """The longest draft of the first `--spec-type`; None without speculation.

        Where the shell gives the flag's value, what the campaign says of the speculation.
        """
        args = without_shell_values(variant.args)
        kind = str(args.get("spec-type", "none")).split(",")[0]
        if kind == "none":
            return super().drafted_tokens(variant)
        length = DRAFT_LENGTHS.get("draft" if kind.startswith("draft-") else kind)
        if length is None or (length[0] in variant.args and length[0] not in args):
            return super().drafted_tokens(variant)
        flag, default = length
        return whole_number(flag, args.get(flag, default))


def _speculates(http: httpx.Client) -> bool | None:
    """Whether any slot speculates; None: the server runs with --no-slots."""
    response = http.get("/slots")
    if response.is_error:
        return None
    return any(slot.get("speculative", False) for slot in response.json())


def _version(build_info: str) -> str | None:
    """The build that the server names; the wheel's is called b0-unknown, its package knows."""
    if build_info and not build_info.startswith("b0-"):
        return f"llama.cpp {build_info}"
    try:
        return f"xllamacpp {importlib.metadata.version('xllamacpp')}"
    except importlib.metadata.PackageNotFoundError:
        return None
