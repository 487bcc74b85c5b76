"""The supplied texts by name: seeded generators of prompts of our own writing.

Adding one: a file beside this one with a function `prompts` that takes a `random.Random`, and a
line here.
"""

from __future__ import annotations

import importlib
import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXTS = {
    "agentic": "crossover.texts.agentic",
    "chat": "crossover.texts.chat",
    "code": "crossover.texts.code",
    "fixed-length": "crossover.texts.fixed_length",
    "summarise": "crossover.texts.summarise",
}


def distinct(text: str, seed: int | str, **settings: Any) -> Iterator[str]:
    """Prompts of one kind without end, no two of them equal; the same for the same seed.

    Args:
        text: one of TEXTS.
        seed: of the drawing.
        settings: what the text takes besides, such as `tokens`.
    """
    module = importlib.import_module(TEXTS[text])
    seen: set[str] = set()
    for prompt in module.prompts(random.Random(seed), **settings):
        if prompt not in seen:
            seen.add(prompt)
            yield prompt


def jsonl(prompts: Iterator[str]) -> str:
    """The content of a prompt file: one object with a `prompt` a line."""
    return "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
