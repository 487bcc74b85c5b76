import itertools
import json

import pytest

from crossover.campaign import Workload
from crossover.errors import MeasurementError
from crossover.load.prompts import Address, requests_for
from crossover.prompt_sets import FromFile

QUESTIONS = [f"question {i}" for i in range(10)]
PROMPTS = FromFile(QUESTIONS, "0" * 64)
WORKLOAD = Workload("code", "p.jsonl", "0" * 64, max_tokens=32, extra_body={"top_p": 0.5})


def some(count=25, workload=WORKLOAD, **changed):
    settings = {
        "trial": 3,
        "level": 16,
        "seed": 1,
        "model_name": "m",
        "base_url": "http://127.0.0.1:8080",
        "fields": {"cache_prompt": False},
    } | changed
    return list(itertools.islice(requests_for(workload, PROMPTS, **settings), count))


def body(prepared):
    head, _, content = prepared.payload.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(content)}".encode() in head.split(b"\r\n")
    return json.loads(content)


def test_request_is_what_openai_servers_take():
    prepared = some(1)[0]
    assert prepared.payload.startswith(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080"
    )
    sent = body(prepared)
    (message,) = sent.pop("messages")
    assert message["role"] == "user"
    assert message["content"].endswith(QUESTIONS[prepared.prompt_id])
    assert sent == {
        "model": "m",
        "max_tokens": 32,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
        "top_p": 0.5,
    }


def test_ignore_eos_is_sent_only_when_set():
    assert body(some(1, Workload("w", "p", "0", 8, ignore_eos=True))[0])["ignore_eos"] is True
    assert "ignore_eos" not in body(some(1)[0])


def test_same_for_all_variants_and_another_order_for_each_trial_and_level():
    assert some() == some()
    order = [p.prompt_id for p in some()]
    for changed in ({"trial": 2}, {"level": 8}, {"seed": 2}):
        assert [p.prompt_id for p in some(**changed)] != order


def test_prompts_are_recycled_but_no_two_are_equal():
    requests = [*some(), *some(trial=2), *some(level=8)]
    ids = [p.prompt_id for p in requests[:20]]
    assert sorted(ids[:10]) == sorted(ids[10:]) == list(range(10))
    contents = [body(p)["messages"][0]["content"] for p in requests]
    assert len(set(contents)) == len(contents)
    assert len({c.splitlines()[0] for c in contents}) == len(contents)


def test_key_goes_into_the_header():
    assert b"\r\nAuthorization: Bearer secret\r\n" in some(1, api_key="secret")[0].payload
    assert b"Authorization" not in some(1)[0].payload


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://host", ("http", "host", 80, "/v1/chat/completions")),
        ("http://host:8000/v1/", ("http", "host", 8000, "/v1/chat/completions")),
        ("http://[::1]:1/llm", ("http", "::1", 1, "/llm/v1/chat/completions")),
        ("https://host", ("https", "host", 443, "/v1/chat/completions")),
    ],
)
def test_addresses(url, address):
    assert Address.of(url) == address


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("http://host:80", "host"),
        ("https://host", "host"),
        ("https://host:80", "host:80"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_host_header_leaves_out_the_schemes_own_port(url, header):
    assert Address.of(url).host_header == header


@pytest.mark.parametrize("url", ["host:8000", "ftp://host", "http://"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(MeasurementError, match=url):
        Address.of(url)
