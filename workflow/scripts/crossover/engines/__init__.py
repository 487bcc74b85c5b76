"""The engines by name. Adding one: a file beside this one and a line here."""

from __future__ import annotations

import importlib

from crossover.engines.base import Engine

ENGINES = {
    "llamacpp": "crossover.engines.llamacpp:LlamaCpp",
    "openai": "crossover.engines.openai:OpenAI",
    "sglang": "crossover.engines.sglang:Sglang",
    "simulated": "crossover.engines.simulated:Simulated",
    "vllm": "crossover.engines.vllm:Vllm",
}


def get(name: str) -> Engine:
    """The engine called `name`, one of ENGINES."""
    module, cls = ENGINES[name].split(":")
    return getattr(importlib.import_module(module), cls)()
