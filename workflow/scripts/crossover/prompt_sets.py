"""Where a workload's prompts come from: a file, gone through again and again, or a supplied text,
written anew for every point.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crossover import texts
from crossover.errors import CampaignError

_FINGERPRINTED = 16


class PromptSet(Protocol):
    """Prompts without end."""

    sha256: str
    """Stands for the prompts in a point's digest."""

    def drawn(self, key: str) -> Iterator[tuple[int, str]]:
        """(id, prompt) in the order that `key` stands for; equal ids are equal prompts."""


@dataclass(frozen=True)
class FromFile:
    """The lines of a file; each is used once before any is used again."""

    prompts: Sequence[str]
    sha256: str

    def drawn(self, key: str) -> Iterator[tuple[int, str]]:
        """Endless, since it begins again."""
        order = list(enumerate(self.prompts))
        random.Random(key).shuffle(order)
        return itertools.cycle(order)


@dataclass(frozen=True)
class FromText:
    """A supplied text: no prompt is used twice in a point.

    `settings` are what the text takes besides a source of random numbers.
    """

    text: str
    settings: Mapping[str, Any]

    @property
    def sha256(self) -> str:
        """Of the first prompts of one key: another text, setting or generator gives another."""
        prompts = itertools.islice(self.drawn("sha256"), _FINGERPRINTED)
        return hashlib.sha256("\0".join(prompt for _, prompt in prompts).encode()).hexdigest()

    def drawn(self, key: str) -> Iterator[tuple[int, str]]:
        """Endless; written as it is asked for."""
        return enumerate(texts.distinct(self.text, key, **self.settings))


def prompt_set(prompts: str | Mapping[str, Any], root: Path = Path()) -> PromptSet:
    """What a workload's `prompts` stands for.

    Args:
        prompts: a JSONL file, or the name and settings of a supplied text.
        root: the folder that relative paths start from.

    Raises:
        CampaignError: the file cannot be read, a line is no prompt, or the text takes other
            settings.
    """
    if isinstance(prompts, str):
        try:
            content = (root / prompts).read_bytes()
        except OSError as error:
            raise CampaignError(
                f"cannot read {prompts!r} ({error.strerror}); "
                "give a JSONL file with one object with a `prompt` a line"
            ) from None
        return FromFile(read_prompts(content, prompts), hashlib.sha256(content).hexdigest())
    settings = {name: value for name, value in prompts.items() if name != "text"}
    needed = {"tokens"} if prompts["text"] == "fixed-length" else set()
    if set(settings) != needed:
        raise CampaignError(
            f"text {prompts['text']} takes {', '.join(needed) or 'no settings'}; "
            f"{', '.join(settings) or 'none'} given"
        )
    return FromText(prompts["text"], settings)


def read_prompts(content: bytes, source: str) -> list[str]:
    """The prompts of a JSONL file: one object with a non-empty string `prompt` a line.

    Raises:
        CampaignError: names the line that is something else, or says that there is none.
    """
    prompts = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            prompt = json.loads(line)["prompt"]
        except (ValueError, TypeError, KeyError):
            prompt = None
        if not isinstance(prompt, str) or not prompt.strip():
            raise CampaignError(
                f"{source}: line {number} is {line[:60].decode(errors='replace')!r}; "
                'each line must be a JSON object such as {"prompt": "…"}'
            )
        prompts.append(prompt)
    if not prompts:
        raise CampaignError(f"{source}: holds no prompts")
    return prompts
