"""What every engine must keep, whatever server stands behind it."""

from __future__ import annotations

import dataclasses

import httpx
import pytest

from crossover import engines
from crossover.campaign import Model, Variant, Workload
from crossover.engines.base import Counters, Description, Gauges
from crossover.engines.flags import PLACEHOLDERS, fill
from crossover.errors import EngineError

MODEL = Model("model", "models/model.gguf")
VARIANTS = {
    "llamacpp": Variant("v", "llamacpp", MODEL, args={"threads": 1}),
    "openai": Variant("v", "openai", MODEL, command=("serve", "--port", "{port}")),
    "sglang": Variant("v", "sglang", MODEL, args={"tp-size": 2}),
    "simulated": Variant("v", "simulated", MODEL, args={"memory-ms": 1.0}),
    "vllm": Variant("v", "vllm", MODEL, args={"tensor-parallel-size": 2}),
}
WORKLOAD = Workload("w", "p.jsonl", "0", max_tokens=8, ignore_eos=True)


def dead_server() -> httpx.Client:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    return httpx.Client(transport=httpx.MockTransport(refuse), base_url="http://127.0.0.1:1")


def bare_server() -> httpx.Client:
    """A server that knows none of the routes."""
    handler = httpx.MockTransport(lambda request: httpx.Response(404, json={"error": "no"}))
    return httpx.Client(transport=handler, base_url="http://127.0.0.1:1")


def test_every_engine_is_held_to_the_contract():
    assert set(VARIANTS) == set(engines.ENGINES)


@pytest.mark.parametrize("name", engines.ENGINES)
class TestContract:
    def test_its_name_is_the_one_it_is_found_by(self, name: str):
        assert engines.get(name).name == name

    def test_its_command_names_the_port_and_no_path_of_this_machine(self, name: str):
        command = engines.get(name).command(VARIANTS[name], MODEL)
        assert any("{port}" in word for word in command)
        assert not any(word.startswith("/") for word in command)
        filled = fill(command, **dict.fromkeys(PLACEHOLDERS, "x"))
        assert not any(f"{{{p}}}" in word for word in filled for p in PLACEHOLDERS)

    def test_its_command_does_not_depend_on_the_order_of_args(self, name: str):
        variant = VARIANTS[name]
        turned = dataclasses.replace(variant, args=dict(reversed(variant.args.items())))
        engine = engines.get(name)
        assert engine.command(variant, MODEL) == engine.command(turned, MODEL)

    def test_a_program_that_is_not_there_is_named_with_what_to_do(self, name: str):
        engine = engines.get(name)
        for key in sorted({"binary", "command"} & engine.takes):
            given = "/no/such" if key == "binary" else ("/no/such", "{port}")
            variant = dataclasses.replace(VARIANTS[name], **{key: given})
            with pytest.raises(EngineError, match=f"{key}: '/no/such' is no program .*; .*give"):
                engine.check_installed(variant)

    def test_its_program_is_looked_for_on_the_path(self, name: str, monkeypatch):
        engine = engines.get(name)
        if engine.program:
            monkeypatch.setenv("PATH", "/no/such")
            with pytest.raises(EngineError, match=f"'{engine.program}' is no program"):
                engine.check_installed(VARIANTS[name])

    def test_its_request_fields_are_json(self, name: str):
        import json

        json.dumps(engines.get(name).request_fields(WORKLOAD))

    def test_what_a_server_does_not_say_stays_none(self, name: str):
        engine = engines.get(name)
        with bare_server() as http:
            if name == "openai":  # the others may refuse a server that is not theirs
                assert engine.counters(http) == Counters()
                assert engine.gauges(http) == Gauges()
                assert isinstance(engine.describe(http), Description)

    def test_a_dead_server_is_an_http_error(self, name: str):
        engine = engines.get(name)
        with dead_server() as http:
            for question in (engine.counters, engine.gauges):
                with pytest.raises(httpx.HTTPError):
                    question(http)
