"""A server with a documented step-time model, and hence a known crossover.

`simulated_model` holds the model, `simulated_server` the process. To see what is true of a
campaign: `PYTHONPATH=workflow/scripts python -m crossover.engines.simulated CAMPAIGN.yaml`.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from crossover.engines import prometheus
from crossover.engines.base import Counters, Description, Engine, Gauges
from crossover.engines.flags import flags, without_shell_values
from crossover.engines.simulated_model import Settings, true_crossovers, true_throughput
from crossover.engines.simulated_server import Flags
from crossover.errors import CampaignError, EngineError

if TYPE_CHECKING:
    import httpx

    from crossover.campaign import Campaign, Model, Variant, Workload


class Simulated(Engine):
    """`simulated_server.py`, run by the interpreter that runs us."""

    name = "simulated"
    rehearsal = True
    speculation_settings = "draft|verify|acceptance"
    acceptance_settings = "acceptance"

    def command(self, variant: Variant, model: Model) -> list[str]:
        """The server with the variant's flags.

        Raises:
            CampaignError: a flag that the server does not know.
        """
        settings(variant)
        server = ["{python}", "{engines}/simulated_server.py"]
        return [*server, "--port", "{port}", "--model", "{model_name}", *flags(variant.args)]

    def request_fields(self, workload: Workload) -> dict[str, Any]:
        """Usage in every chunk, so that the tokens of a cancelled request are known too."""
        return {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}

    def describe(self, http: httpx.Client) -> Description:
        """Its settings, as /server_info gives them.

        Raises:
            EngineError: the answer is another one.
        """
        response = http.get("/server_info")
        try:
            info = response.json()
            used = Settings(**info["settings"])
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"{response.url}: not the answer of a simulated server "
                f"(HTTP {response.status_code}, {response.text[:60]!r})"
            ) from error
        return Description(
            engine_version=info["version"],
            model=info["model"],
            max_running_requests=used.max_running,
            speculation_method="simulated" if used.drafted_tokens else "none",
            drafted_tokens=used.drafted_tokens or None,
            prefix_cache=used.prefix_cache,
            front_end_processes=used.front_end_workers,
            resolved=info["settings"],
        )

    def counters(self, http: httpx.Client) -> Counters:
        """All that it counts; a server without speculation counts no drafts: None."""
        read = _metrics(http)
        speculates = read.by_position("simulated:accepted_per_position_total") is not None

        def drafts(name: str) -> float | None:
            return read.total(f"simulated:{name}_total") if speculates else None

        return Counters(
            output_tokens=read.total("simulated:output_tokens_total"),
            prompt_tokens=read.total("simulated:prompt_tokens_total"),
            cached_prompt_tokens=read.total("simulated:cached_prompt_tokens_total"),
            verify_steps=drafts("verify_steps"),
            drafted_tokens=drafts("drafted_tokens"),
            accepted_tokens=drafts("accepted_tokens"),
            accepted_per_position=read.by_position("simulated:accepted_per_position_total"),
        )

    def gauges(self, http: httpx.Client) -> Gauges:
        """Requests in the batch and in the queue; it has no KV cache to fill."""
        read = _metrics(http)
        return Gauges(
            running_requests=read.total("simulated:requests_running"),
            queued_requests=read.total("simulated:requests_waiting"),
        )

    def reset_cache(self, http: httpx.Client) -> bool:
        """Forget all prompts seen."""
        return http.post("/reset_prefix_cache").raise_for_status().json()["success"]


def _metrics(http: httpx.Client) -> prometheus.Metrics:
    read = prometheus.fetch(http)
    if read is None:
        raise EngineError(f"{http.base_url}: no /metrics; is this a simulated server?")
    return read


# ------------------------------------------------------------------ what is true of a campaign


def settings(variant: Variant) -> Settings:
    """The model's settings that a variant's flags ask for, those from the shell left out.

    Raises:
        CampaignError: a flag that the server does not know, or a value that is none.
    """
    try:
        return Flags().settings(flags(without_shell_values(variant.args)))[0]
    except ValueError as error:
        raise CampaignError(f"args: {error}; simulated_server.py --help lists all flags") from None


def truth(campaign: Campaign, workload: str, prompt_tokens: float) -> str:
    """True throughput at every level and true crossovers, as text.

    Args:
        campaign: its variants are all simulated.
        workload: its name.
        prompt_tokens: mean length of its prompts, in words.
    """
    output_tokens = campaign.workloads[workload].max_tokens
    arms = {name: settings(variant) for name, variant in campaign.variants.items()}
    lines = [f"workload {workload}: {output_tokens} tokens out, {prompt_tokens:.1f} in"]
    for level in campaign.load.concurrency:
        rates = ", ".join(
            f"{name} {true_throughput(arm, level, output_tokens, prompt_tokens):.1f} tokens/s"
            for name, arm in arms.items()
        )
        lines.append(f"concurrency {level}: {rates}")
    for variant, reference in campaign.comparisons:
        found = true_crossovers(arms[reference], arms[variant], output_tokens, prompt_tokens)
        shown = ", ".join(f"{c:.2f}" for c in found) or "none"
        lines.append(f"true crossover of {variant} and {reference}: {shown}")
    return "\n".join(lines)


def main(path: str) -> None:
    """Print what is true of the campaign file at `path`, from the repository's root."""
    import yaml

    from crossover.campaign import load_campaign
    from crossover.prompt_sets import prompt_set

    campaign = load_campaign(yaml.safe_load(Path(path).read_text()), path)
    for name, workload in campaign.workloads.items():
        prompts = itertools.islice(prompt_set(workload.prompts).drawn("truth"), 1000)
        print(truth(campaign, name, mean(len(prompt.split()) for _, prompt in prompts)))


if __name__ == "__main__":
    main(sys.argv[1])
