"""How many tokens of the default model the supplied texts have.

    .venv/bin/python benchmarks/prompt_lengths.py [PROMPTS]

Without the first line that each request gets and without the chat template.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow" / "scripts"))

import httpx
import xllamacpp

from crossover.gguf_model import packaged_model
from crossover.texts import TEXTS, distinct

SETTINGS = {"fixed-length": {"tokens": 1024}}


def tokens(server: xllamacpp.Server, text: str) -> int:
    answer = httpx.post(f"{server.listening_address}/tokenize", json={"content": text})
    return len(answer.raise_for_status().json()["tokens"])


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    params = xllamacpp.CommonParams()
    params.model.path = str(packaged_model())
    params.verbosity = -1
    server = xllamacpp.Server(params)
    print(f"tokens of {count} prompts each: least, median, most")
    for text in TEXTS:
        prompts = itertools.islice(distinct(text, 1, **SETTINGS.get(text, {})), count)
        lengths = sorted(tokens(server, prompt) for prompt in prompts)
        print(f"{text}: {lengths[0]}, {lengths[count // 2]}, {lengths[-1]}")


if __name__ == "__main__":
    main()
