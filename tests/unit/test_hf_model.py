"""The default model as a folder of safetensors."""

from __future__ import annotations

import json

import numpy as np
import pytest

from crossover.errors import EngineError
from crossover.gguf_model import convert, packaged_model
from crossover.hf_model import write_folder

gguf = pytest.importorskip("gguf")
HEADS, KV_HEADS, SIZE = 9, 3, 576


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model-bf16.gguf"
    convert(packaged_model(), path)
    return path


@pytest.fixture(scope="module")
def folder(source):
    target = source.with_name("model")
    assert write_folder(source, target) == 272
    return target


def written(folder):
    """name → array, as the safetensors format says; BF16 as its 16 bits."""
    content = memoryview((folder / "model.safetensors").read_bytes())
    length = int.from_bytes(content[:8], "little")
    header = json.loads(bytes(content[8 : 8 + length]))
    assert header.pop("__metadata__") == {"format": "pt"}
    kinds = {"BF16": np.uint16, "F32": np.float32}
    return {
        name: np.frombuffer(
            content[8 + length :][slice(*entry["data_offsets"])], kinds[entry["dtype"]]
        ).reshape(entry["shape"])
        for name, entry in header.items()
    }


def test_weights_are_those_of_the_file(source, folder):
    arrays = written(folder)
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(source).tensors}
    same = {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.3.ffn_down.weight": "model.layers.3.mlp.down_proj.weight",
        "blk.3.attn_output.weight": "model.layers.3.self_attn.o_proj.weight",
    }
    for theirs, ours in same.items():
        np.testing.assert_array_equal(arrays[ours], tensors[theirs].view(np.uint16))
    norm = arrays["model.layers.29.input_layernorm.weight"]
    np.testing.assert_array_equal(norm, tensors["blk.29.attn_norm.weight"])


@pytest.mark.parametrize(("part", "heads"), [("q", HEADS), ("k", KV_HEADS)])
def test_rows_of_a_rotation_are_in_halves(source, folder, part: str, heads: int):
    ours = written(folder)[f"model.layers.0.self_attn.{part}_proj.weight"]
    (theirs,) = (
        tensor.data.view(np.uint16)
        for tensor in gguf.GGUFReader(source).tensors
        if tensor.name == f"blk.0.attn_{part}.weight"
    )
    size = len(ours) // heads
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        np.testing.assert_array_equal(ours[rows][: size // 2], theirs[rows][0::2])
        np.testing.assert_array_equal(ours[rows][size // 2 :], theirs[rows][1::2])


def test_the_shape_of_the_model(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["hidden_size"], config["num_hidden_layers"]) == (SIZE, 30)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV_HEADS)
    assert config["rms_norm_eps"] == 1e-5


def test_the_tokenizer_knows_its_special_tokens_and_its_template(folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert special["<|im_end|>"] == 2
    assert len(tokenizer["model"]["vocab"]) == 49152
    assert "Ġt he" in tokenizer["model"]["merges"]
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["eos_token"] == "<|im_end|>"
    assert "<|im_start|>" in settings["chat_template"]


def test_another_kind_of_weights_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(EngineError, match=r"is Q8_0: only Llama-shaped models in BF16"):
        write_folder(packaged_model(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
