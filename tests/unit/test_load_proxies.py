import pytest
from loads import QUICK, classes, plain_requests, put_load
from sse_server import SseServer, answer

from crossover import control
from crossover.errors import MeasurementError
from crossover.load import proxies
from crossover.load.arrivals import ClosedLoop
from crossover.load.client import run_load

PROXY = "http://user:hidden@proxy.example:3128"


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("http://far.example:8000", "HTTP_PROXY"),
        ("https://far.example", "HTTPS_PROXY"),
        ("https://far.example", "ALL_PROXY"),
        ("http://10.1.2.3:8000", "http_proxy"),
    ],
)
def test_a_proxy_that_applies_is_refused(monkeypatch, url, variable):
    monkeypatch.setenv(variable, PROXY)
    with pytest.raises(MeasurementError, match=rf"{url}: {variable.upper()} is set") as caught:
        run_load(url, plain_requests(url), ClosedLoop(1, 0.05), QUICK)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "environment"),
    [
        ("http://far.example", {}),
        ("http://far.example", {"HTTPS_PROXY": PROXY}),
        ("http://far.example:8000", {"HTTP_PROXY": PROXY, "NO_PROXY": "far.example"}),
        ("http://far.example:8000", {"HTTP_PROXY": PROXY, "NO_PROXY": "far.example:8000"}),
        ("http://a.far.example", {"HTTP_PROXY": PROXY, "NO_PROXY": ".far.example"}),
        ("https://far.example", {"ALL_PROXY": PROXY, "NO_PROXY": "*"}),
        ("http://localhost:1", {"HTTP_PROXY": PROXY}),
        ("http://127.0.0.1:1", {"ALL_PROXY": PROXY}),
        ("http://[::1]:1", {"HTTP_PROXY": PROXY}),
    ],
)
def test_a_proxy_that_does_not_apply_is_none(monkeypatch, url, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    proxies.refuse(url)


def test_servers_on_this_machine_are_reached_directly(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", PROXY)
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    with SseServer(lambda n, b: answer(events=3, gap_s=0.003)) as server:
        _, answers = put_load(server)
        assert classes(answers) == set()
        with control.client(server.url) as http:
            assert http.post("/v1/chat/completions", json={}).status_code == 200
