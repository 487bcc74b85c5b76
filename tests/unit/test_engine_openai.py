import httpx
import pytest

from crossover.campaign import Model, Variant
from crossover.engines import get, prometheus
from crossover.engines.base import Counters, Description, Gauges
from crossover.errors import CampaignError, EngineError

MODEL = Model(name="m")


def variant(**settings):
    return Variant(name="v", engine="openai", model=MODEL, **settings)


def server(routes):
    """A client of a server with these routes: {path: text or JSON or status}."""

    def answer(request):
        content = routes.get(request.url.path, 404)
        if isinstance(content, int):
            return httpx.Response(content)
        if isinstance(content, str):
            return httpx.Response(200, text=content)
        return httpx.Response(200, json=content)

    return httpx.Client(base_url="http://server", transport=httpx.MockTransport(answer))


def test_a_given_command_is_the_command():
    words = ("serve", "--port", "{port}", "--json", '{"a": 1}')
    assert get("openai").command(variant(command=words), MODEL) == list(words)


def test_braces_of_other_programs_are_left_alone():
    others = ("${SIZE}", "{{name}}", "{{.ID}}", "%{http_code}", '{"a": {"b": 1}}', "{}", "{a,b}")
    words = ("serve", "{port}", *others)
    assert get("openai").command(variant(command=words), MODEL) == list(words)


def test_at_a_given_url_nothing_is_started():
    assert get("openai").command(variant(url="http://host:8000"), MODEL) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "command or url: neither"),
        ({"url": "http://h", "command": ("x", "{port}")}, "command or url: both"),
        ({"url": "http://h", "args": {"tp": 2}}, "args: tp given"),
        ({"url": "http://h/v1/"}, "without its /v1"),
        ({"url": "http://h:99999"}, "'http://h:99999' is no address: Port out of range"),
        ({"url": "http://h:x"}, "is no address: Port"),
        ({"url": "http://[::1"}, "is no address: Invalid IPv6 URL"),
        ({"command": ("serve", "--port", "8000")}, r"no \{port\}"),
        (
            {"command": ("serve", "-p", "{port}", "--health", "http://h:{prot}")},
            r"command: \{prot\} is no placeholder; known: \{port\}, \{model\}, ",
        ),
        (
            {"command": ("serve", "{port}"), "stop": ("docker", "rm", "{Name}")},
            r"stop: \{Name\} is no placeholder",
        ),
    ],
)
def test_an_unusable_variant_is_refused(settings, message):
    with pytest.raises(CampaignError, match=message):
        get("openai").command(variant(**settings), MODEL)


def test_describe_names_the_first_model():
    models = [{"id": "big", "owned_by": "vllm"}, {"id": "small"}]
    with server({"/v1/models": {"object": "list", "data": models}}) as http:
        description = get("openai").describe(http)
    assert description.model == "big"
    assert description.resolved == {"models": models}
    assert description.max_running_requests is None


@pytest.mark.parametrize("answer", [404, 500, "<html>", {"data": [{}]}, ["x"]])
def test_an_answer_that_is_no_model_list_describes_nothing(answer):
    with server({"/v1/models": answer}) as http:
        assert get("openai").describe(http) == Description()


@pytest.mark.parametrize("status", [404, 501])
def test_without_metrics_nothing_is_known(status):
    with server({"/metrics": status}) as http:
        assert get("openai").counters(http) == Counters()
        assert get("openai").gauges(http) == Gauges()


VLLM = """\
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0"} 100.0
vllm:generation_tokens_total{engine="1"} 20.0
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0"} 40.0
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 50.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 25.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 5.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 7.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.6
vllm:kv_cache_usage_perc{engine="1"} 0.7
"""


def test_vllm_metrics_are_understood():
    with server({"/metrics": VLLM}) as http:
        counters = get("openai").counters(http)
        gauges = get("openai").gauges(http)
    assert counters == Counters(
        output_tokens=120.0,
        verify_steps=40.0,
        accepted_tokens=50.0,
        accepted_per_position=(30.0, 20.0),
    )
    assert gauges == Gauges(running_requests=7.0, queued_requests=None, kv_cache_usage=0.7)


def test_sglang_and_llamacpp_metrics_are_understood():
    for text, tokens in (
        ("sglang:generation_tokens_total 3.0\n", 3.0),
        ("llamacpp:tokens_predicted_total 4\n", 4.0),
    ):
        with server({"/metrics": text}) as http:
            assert get("openai").counters(http).output_tokens == tokens


def test_values_that_are_no_number_are_missing():
    metrics = prometheus.parse("a NaN\nb 1\n")
    assert metrics.total("a") is None
    assert metrics.total("a", "b") == 1.0
    assert metrics.totals == {"b": 1.0}


def test_an_answer_that_is_no_metrics_is_an_error():
    with pytest.raises(EngineError, match="<html>"):
        prometheus.parse("<html>\n<body>what {is} this\n")
    with server({"/metrics": 500}) as http, pytest.raises(EngineError, match="HTTP 500"):
        prometheus.fetch(http)


def test_a_gateway_without_metrics_counts_nothing():
    with server({"/metrics": "<html>sign in</html>"}) as http:
        assert get("openai").counters(http) == Counters()
        assert get("openai").gauges(http) == Gauges()
