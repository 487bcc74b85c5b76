"""SGLang's own account, as a real SGLang 0.5.17 with EAGLE-3 on an H200 gave it."""

import json
from pathlib import Path

import httpx
import pytest

from crossover.campaign import Model, Variant
from crossover.engines import get
from crossover.engines.base import Counters, Gauges
from crossover.errors import CampaignError, EngineError

DATA = Path(__file__).parents[1] / "data" / "engines" / "sglang"
INFO = json.loads((DATA / "server_info.json").read_text())
MODEL = Model(name="m", path="models/m")
MODELS = httpx.Response(200, json={"data": [{"id": "m"}]})
SGLANG = get("sglang")


def variant(**args):
    return Variant(name="v", engine="sglang", model=MODEL, args=args)


def server(**routes):
    """A client of a server with these routes, `_` for `/`; all others are 404."""

    def answer(request):
        return routes.get(request.url.path.strip("/").replace("/", "_"), httpx.Response(404))

    return httpx.Client(base_url="http://server", transport=httpx.MockTransport(answer))


def described(**changes):
    with server(
        server_info=httpx.Response(200, json={**INFO, **changes}), v1_models=MODELS
    ) as http:
        return SGLANG.describe(http)


def test_the_command_is_the_users_flags_and_metrics():
    command = SGLANG.command(variant(**{"tp-size": 8, "disable-radix-cache": True}), MODEL)
    assert command == [
        *("sglang", "serve", "--model-path", "{model}", "--served-model-name", "{model_name}"),
        *("--host", "127.0.0.1", "--port", "{port}", "--enable-metrics"),
        *("--disable-radix-cache", "--tp-size", "8"),
    ]


@pytest.mark.parametrize("flag", ["port", "--host", "model_path", "enable-metrics"])
def test_flags_of_the_workflow_are_refused(flag):
    with pytest.raises(CampaignError, match="set by the workflow"):
        SGLANG.command(variant(**{flag: "x"}), MODEL)


def test_a_real_servers_account_is_read():
    description = described()
    assert description.engine_version == "sglang 0.5.17"
    assert description.max_running_requests == 256
    assert description.kv_tokens == 747684
    assert description.speculation_method == "EAGLE3"
    assert description.drafted_tokens == 3  # the verify width is 4
    assert description.prefix_cache is False
    assert description.front_end_processes == 1


def test_the_silent_cap_is_the_schedulers_own_number():
    states = [{**INFO["internal_states"][0], "effective_max_running_requests_per_dp": 48}]
    assert described(internal_states=states, max_running_requests=None).max_running_requests == 48


def test_running_requests_are_summed_over_data_parallel_ranks():
    state = {"effective_max_running_requests_per_dp": 6}
    assert described(internal_states=[state] * 8).max_running_requests == 48


def test_adaptive_drafting_has_no_draft_length():
    assert described(speculative_adaptive=True).drafted_tokens is None


def test_credentials_are_left_out_of_the_account():
    description = described(api_key="sk-1", admin_api_key="sk-2", ssl_keyfile_password="sk-3")
    assert "sk-" not in json.dumps(description.resolved)
    assert description.resolved["tokenizer_worker_num"] == 1


def test_the_route_before_it_was_renamed():
    with server(get_server_info=httpx.Response(200, json=INFO), v1_models=MODELS) as http:
        assert SGLANG.describe(http).engine_version == "sglang 0.5.17"


def test_another_program_on_the_port_is_named():
    with (
        server(v1_models=MODELS, server_info=httpx.Response(200, text="hello")) as http,
        pytest.raises(EngineError, match="not SGLang's"),
    ):
        SGLANG.describe(http)


def metrics(name):
    return server(metrics=httpx.Response(200, text=(DATA / name).read_text()))


def test_a_verify_call_yields_its_accepted_drafts_and_one_token_more():
    with metrics("metrics.txt") as http:
        counters = SGLANG.counters(http)
    assert counters.output_tokens == 402014
    assert counters.decoded_tokens == 479490  # cancelled requests' tokens too
    assert counters.verify_steps == 158512
    assert counters.accepted_tokens == 402014 - 158512
    # dialled to 2.55
    assert counters.output_tokens / counters.verify_steps == pytest.approx(2.54, abs=0.01)


def test_without_speculation_nothing_is_known_of_drafts():
    with metrics("metrics_base.txt") as http:
        counters = SGLANG.counters(http)
        gauges = SGLANG.gauges(http)
    assert counters.output_tokens > 0
    assert counters.verify_steps is None
    assert counters.accepted_tokens is None
    assert gauges == Gauges(running_requests=0, queued_requests=0, kv_cache_usage=0)


def test_a_server_without_metrics_counts_nothing():
    with server() as http:
        assert SGLANG.counters(http) == Counters()


@pytest.mark.parametrize(("status", "flushed"), [(200, True), (400, False), (404, None)])
def test_a_flush_is_believed_only_when_it_is_confirmed(status, flushed):
    with server(flush_cache=httpx.Response(status)) as http:
        assert SGLANG.reset_cache(http) is flushed


@pytest.mark.parametrize(
    ("args", "drafted"),
    [
        ({}, None),
        ({"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3}, 3),
        (
            {
                "speculative-algorithm": "EAGLE",
                "speculative-num-steps": 5,
                "speculative-eagle-topk": 1,
                "speculative-num-draft-tokens": 64,
            },
            5,
        ),
        (
            {
                "speculative-algorithm": "EAGLE",
                "speculative-num-steps": 5,
                "speculative-eagle-topk": 4,
                "speculative-num-draft-tokens": 16,
            },
            15,
        ),
        ({"speculative-algorithm": "EAGLE3", "speculative-adaptive": True}, None),
    ],
)
def test_the_verify_width_is_not_the_number_of_drafts(args, drafted):
    assert SGLANG.drafted_tokens(variant(**args)) == drafted
