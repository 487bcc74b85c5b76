"""Write model folders without weights (serve with dummy weights) and prompts of exact length.

Usage: models.py FOLDER
  FOLDER/llama8b   the shape of Llama-3.1-8B
  FOLDER/eagle3    the shape of an EAGLE-3 head for it

The tokenizer is word-level: word w<i> is token i, so words are tokens and a prompt of any length
can be written exactly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

VOCABULARY = 128256
BOS, EOS = 128000, 128001

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-5,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": VOCABULARY,
}
EAGLE3_HEAD = {
    **LLAMA_8B,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32000,
}
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": f"w{BOS}",
    "eos_token": f"w{EOS}",
    "unk_token": "w0",
    "model_max_length": 131072,
    "chat_template": "{% for m in messages %}{{ m['content'] }} {% endfor %}",
}


def main(folder: Path) -> None:
    vocabulary = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    for name, config in (("llama8b", LLAMA_8B), ("eagle3", EAGLE3_HEAD)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / name / "tokenizer.json"))
        for file, content in (("config.json", config), ("tokenizer_config.json", TOKENIZER)):
            (folder / name / file).write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
