"""vLLM's routes and metrics, as read from the sources of 0.25.1 and 0.33.0.

`tests/data/engines/vllm/`: what a real vLLM 0.32.0 on a processor answered to /server_info.
"""

import json
from pathlib import Path

import httpx
import pytest

from crossover.arm_settings import ArmSettings
from crossover.campaign import Model, Variant
from crossover.engines import get
from crossover.engines.base import Counters
from crossover.errors import CampaignError, EngineError

DATA = Path(__file__).parents[1] / "data" / "engines" / "vllm"
MODEL = Model(name="m", path="models/m")
VLLM = get("vllm")
CONFIG = {
    "scheduler_config": {
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "enable_chunked_prefill": True,
    },
    "cache_config": {
        "enable_prefix_caching": False,
        "block_size": 16,
        "num_gpu_blocks": None,
        "gpu_memory_utilization": 0.8,
    },
    "compilation_config": {"max_cudagraph_capture_size": 1024},
    "parallel_config": {"_api_process_count": 4},
    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
    "model_config": {"hf_token": "hf-secret"},
}
METRICS = """\
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0"} 70
vllm:generation_tokens_total{engine="1"} 30
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0"} 40
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0"} 120
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 60
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 30
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 20
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 10
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 5
vllm:num_requests_running{engine="1"} 4
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.25
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",enable_prefix_caching="False"} 1
"""


def variant(**args):
    return Variant(name="v", engine="vllm", model=MODEL, args=args)


def server(**routes):
    """A client of a server with these routes, `_` for `/`; all others are 404."""

    def answer(request):
        return routes.get(request.url.path.strip("/").replace("/", "_"), httpx.Response(404))

    return httpx.Client(base_url="http://server", transport=httpx.MockTransport(answer))


ANSWERS = {
    "version": httpx.Response(200, json={"version": "0.25.1"}),
    "v1_models": httpx.Response(200, json={"data": [{"id": "m"}]}),
    "metrics": httpx.Response(200, text=METRICS),
    "server_info": httpx.Response(200, json={"vllm_config": CONFIG}),
}


def test_the_command_is_the_users_flags_with_nested_json():
    config = {"method": "eagle3", "num_speculative_tokens": 3}
    assert VLLM.command(variant(**{"speculative-config": config}), MODEL) == [
        *("vllm", "serve", "{model}", "--served-model-name", "{model_name}"),
        *("--host", "127.0.0.1", "--port", "{port}"),
        *("--speculative-config", '{"method":"eagle3","num_speculative_tokens":3}'),
    ]


@pytest.mark.parametrize("flag", ["port", "--host", "served_model_name", "model"])
def test_flags_of_the_workflow_are_refused(flag):
    with pytest.raises(CampaignError, match="set by the workflow"):
        VLLM.command(variant(**{flag: "x"}), MODEL)


def test_what_the_server_applied_is_read():
    with server(**ANSWERS) as http:
        description = VLLM.describe(http)
    assert description.engine_version == "vllm 0.25.1"
    assert description.max_running_requests == 256
    assert description.kv_tokens == 16000  # /server_info does not know it, the metric does
    assert description.speculation_method == "eagle3"
    assert description.drafted_tokens == 3
    assert description.prefix_cache is False
    assert description.front_end_processes == 4
    assert description.memory_fraction == 0.8
    assert description.graph_max_requests == 256  # each has three drafts and a token in a step
    assert description.chunked_prefill_tokens == 8192
    assert "hf-secret" not in json.dumps(description.resolved)


def test_speculation_that_was_asked_for_and_not_applied_is_seen():
    config = {**CONFIG, "speculative_config": None}
    answers = {**ANSWERS, "server_info": httpx.Response(200, json={"vllm_config": config})}
    with server(**answers) as http:
        assert VLLM.describe(http).speculation_method == "none"


def test_without_graphs_or_chunks_it_is_zero_and_not_unknown():
    config = {
        **CONFIG,
        "model_config": {"enforce_eager": True},
        "scheduler_config": {"max_num_batched_tokens": 8192, "enable_chunked_prefill": False},
    }
    answers = {**ANSWERS, "server_info": httpx.Response(200, json={"vllm_config": config})}
    with server(**answers) as http:
        description = VLLM.describe(http)
    assert description.graph_max_requests == 0
    assert description.chunked_prefill_tokens == 0


def test_without_development_routes_it_is_unknown_not_none():
    with server(**{**ANSWERS, "server_info": httpx.Response(404)}) as http:
        description = VLLM.describe(http)
    assert description.speculation_method is None
    assert description.max_running_requests is None
    assert description.kv_tokens == 16000


def test_another_program_on_the_port_is_named():
    with (
        server(version=httpx.Response(200, text="hello")) as http,
        pytest.raises(EngineError, match="not vLLM's"),
    ):
        VLLM.describe(http)


def test_counters_are_summed_over_engines():
    with server(**ANSWERS) as http:
        counters = VLLM.counters(http)
        gauges = VLLM.gauges(http)
    assert counters == Counters(
        output_tokens=100,
        verify_steps=40,
        drafted_tokens=120,
        accepted_tokens=60,
        accepted_per_position=(30, 20, 10),
    )
    assert gauges.running_requests == 9
    assert gauges.queued_requests is None
    assert gauges.kv_cache_usage == 0.5


@pytest.mark.parametrize(
    ("answer", "reset"),
    [
        (httpx.Response(200, json={"success": True}), True),
        (httpx.Response(200, json={"success": False}), False),
        (httpx.Response(200), None),
        (httpx.Response(404), None),
        (httpx.Response(500), False),
    ],
)
def test_a_reset_is_believed_only_when_it_is_confirmed(answer, reset):
    with server(reset_prefix_cache=answer) as http:
        assert VLLM.reset_cache(http) is reset


def test_drafted_tokens_come_from_the_speculative_config():
    config = {"method": "ngram", "num_speculative_tokens": 4}
    assert VLLM.drafted_tokens(variant()) is None
    assert VLLM.drafted_tokens(variant(**{"speculative-config": config})) == 4
    assert VLLM.drafted_tokens(variant(**{"speculative-config": json.dumps(config)})) == 4
    with pytest.raises(CampaignError, match="no JSON"):
        VLLM.drafted_tokens(variant(**{"speculative-config": "{ngram"}))


# ------------------------------------------------------------------ a real server's account


def real(arm):
    return json.loads((DATA / f"server_info_{arm}.json").read_text())


def test_a_real_servers_account_is_read():
    answers = {**ANSWERS, "server_info": httpx.Response(200, json=real("ngram"))}
    with server(**answers) as http:
        description = VLLM.describe(http)
    assert description.max_running_requests == 16
    assert description.speculation_method == "ngram"
    assert description.drafted_tokens == 4
    assert description.graph_max_requests == 0  # --enforce-eager


def test_two_arms_of_a_real_server_differ_in_speculation_alone():
    """Apart from what is new at each start, which an arm of several sessions leaves out."""

    def arm(name):
        account = real(name)["vllm_config"]
        del account["instance_id"]
        return ArmSettings.of(
            [{"engine": "vllm", "description": json.dumps({"resolved": account})}]
        )

    plain, ngram = arm("plain"), arm("ngram")
    differing = plain.differences(ngram)
    assert len(differing) > 10
    assert [name for name in differing if not plain.belongs_to_speculation(name)] == []


def test_graph_sizes_follow_the_drafts_and_are_no_difference_of_the_arms():
    """In tokens: a request has its drafts and one token in a step. A processor has no graphs."""

    def arm(*sizes):
        graphs = {"cudagraph_capture_sizes": sizes, "max_cudagraph_capture_size": sizes[-1]}
        account = real("plain")["vllm_config"] | {"compilation_config": graphs}
        return ArmSettings.of(
            [{"engine": "vllm", "description": json.dumps({"resolved": account})}]
        )

    plain, eagle3 = arm(1, 2, 4, 256), arm(4, 8, 16, 1024)
    differing = plain.differences(eagle3)
    assert len(differing) == 2
    assert all(map(plain.belongs_to_speculation, differing))
