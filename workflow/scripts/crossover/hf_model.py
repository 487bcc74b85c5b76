"""A Llama-shaped GGUF file as a folder of safetensors, as servers other than llama.cpp's read it.

The weights are the file's own, bit by bit. llama.cpp keeps the rows of the query and key matrices
in pairs of a rotation; here they are put back in halves.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossover.errors import EngineError

if TYPE_CHECKING:
    import gguf
    import numpy as np

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_SPECIAL = 3
"""A token's type in GGUF: not text, such as <|im_end|>."""


def write_folder(source: Path, target: Path) -> int:
    """Write the model in `source`, BF16 and F32 tensors only, to the folder `target`.

    The target is whole or absent.

    Returns:
        The number of tensors.

    Raises:
        EngineError: `gguf` is not installed, or the file has other tensors than a small Llama's.
    """
    try:
        import gguf
    except ImportError as error:
        raise EngineError(
            f"cannot import gguf ({error}); install it with: pip install gguf==0.19.0"
        ) from None
    reader = gguf.GGUFReader(source)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        _write_tensors(reader, partial / "model.safetensors")
        for name, content in (
            ("config.json", _config(reader)),
            ("tokenizer.json", _tokenizer(reader)),
            ("tokenizer_config.json", _tokenizer_config(reader)),
        ):
            (partial / name).write_text(json.dumps(content, indent=1))
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return len(reader.tensors)


def _field(reader: gguf.GGUFReader, name: str) -> Any:
    return reader.fields[name].contents()


def _write_tensors(reader: gguf.GGUFReader, path: Path) -> None:
    """safetensors: the length of a header, the header as JSON, then the tensors' bytes."""
    heads = {
        "attn_q": _field(reader, "llama.attention.head_count"),
        "attn_k": _field(reader, "llama.attention.head_count_kv"),
    }
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    arrays, end = [], 0
    for tensor in reader.tensors:
        kind = tensor.tensor_type.name
        *layer, part, _ = tensor.name.split(".")
        if kind not in ("BF16", "F32") or part not in _TENSORS:
            raise EngineError(
                f"{tensor.name} is {kind}: only Llama-shaped models in BF16 can be written"
            )
        array = tensor.data.view("uint16" if kind == "BF16" else "float32")
        if part in heads:
            array = _in_halves(array, heads[part])
        prefix = f"model.layers.{layer[1]}." if layer else ""
        header[f"{prefix}{_TENSORS[part]}.weight"] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [end, end := end + array.nbytes],
        }
        arrays.append(array)
    encoded = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for array in arrays:
            file.write(array.tobytes())


def _in_halves(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Of each head's rows first the even ones, then the odd ones."""
    rows, columns = matrix.shape
    pairs = matrix.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _config(reader: gguf.GGUFReader) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": _field(reader, "llama.embedding_length"),
        "intermediate_size": _field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_attention_heads": _field(reader, "llama.attention.head_count"),
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv"),
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "rms_norm_eps": round(_field(reader, "llama.attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": _field(reader, "llama.rope.freq_base"),
        "vocab_size": _field(reader, "llama.vocab_size"),
        "tie_word_embeddings": True,
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
    }


def _tokenizer(reader: gguf.GGUFReader) -> dict[str, Any]:
    """Byte pairs, with each digit a token of its own."""
    tokens = _field(reader, "tokenizer.ggml.tokens")
    types = _field(reader, "tokenizer.ggml.token_type")
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": number,
                "content": token,
                "special": True,
                **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
            }
            for number, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind == _SPECIAL
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**bytes_, "use_regex": True},
            ],
        },
        "decoder": {**bytes_, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": _field(reader, "tokenizer.ggml.merges"),
        },
    }


def _tokenizer_config(reader: gguf.GGUFReader) -> dict[str, Any]:
    tokens = _field(reader, "tokenizer.ggml.tokens")
    roles = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": _field(reader, "llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "chat_template": _field(reader, "tokenizer.chat_template"),
        **{
            f"{role}_token": tokens[_field(reader, f"tokenizer.ggml.{name}_token_id")]
            for role, name in roles.items()
        },
    }
