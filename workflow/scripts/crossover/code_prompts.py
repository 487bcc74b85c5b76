"""Prompts for the workload `code`: small edits of a function that stands in the prompt.

Such an answer repeats most of its prompt, which is what n-gram speculation drafts from. Functions
and edits are written for this project; names and numbers are drawn, so that no two prompts are
equal. The drawing is seeded: the same arguments give the same bytes.

    python -m crossover.code_prompts > config/prompts/code.jsonl
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 768
SEED = 1

CODES = (
    """\
def test_{noun}():
    {noun} = {verb}_{noun}()
    assert {noun}.{first} == {number}
    assert {noun}.{second} == {another}
    assert {noun}.{third} == {last}""",
    """\
def test_{verb}_{noun}():
    {noun} = {verb}_{noun}({number})
    assert {noun}.{first} == {number}
    assert {noun}.{second} > {another}
    assert {noun}.{third} < {last}""",
    """\
class {Noun}:
    def __init__(self, {first}, {second}, {third}):
        self.{first} = {first}
        self.{second} = {second}
        self.{third} = {third}""",
    """\
class {Noun}:
    def {verb}(self, {first}, {second}, {third}):
        self.{first} += {first}
        self.{second} -= {second}
        self.{third} *= {third}""",
    """\
def {verb}_{noun}({noun}, other):
    {noun}.{first} = other.{first}
    {noun}.{second} = other.{second}
    {noun}.{third} = other.{third}
    return {noun}""",
)
"""Pieces of about 50 tokens."""

EDITS = (
    "Rename `{first}` to `{new}`.",
    "Rename `{second}` to `{new}`.",
    "Rename `{third}` to `{new}`.",
    "Remove the line with `{second}`.",
    "Add a comment above the line with `{third}`.",
    "Add a one-line docstring.",
)

VERBS = (
    *("build", "change", "create", "find", "load", "make", "merge", "open"),
    *("prepare", "read", "refresh", "renew", "select", "take", "update", "use"),
)
NOUNS = (
    *("account", "book", "cell", "device", "engine", "event", "order", "parcel"),
    *("planet", "player", "record", "room", "route", "sensor", "signal", "ticket"),
)
FIELDS = (
    *("age", "cost", "depth", "height", "length", "level", "load", "mass"),
    *("pages", "price", "rank", "score", "speed", "voltage", "weight", "width"),
)
NEW_NAMES = (
    *("answer", "amount", "chosen", "current", "figure", "found", "measure", "quantity"),
    *("reading", "remaining", "sample", "state"),
)

TEMPLATE = """\
{edit} Keep the rest of the code as it is and answer with the whole code only.

```python
{code}
```"""


def prompts(count: int = COUNT, seed: int = SEED) -> Iterator[str]:
    """`count` distinct prompts, the kinds of code and edit evenly mixed."""
    draw = random.Random(seed)
    kinds = list(itertools.product(CODES, EDITS))
    seen: set[str] = set()
    while len(seen) < count:
        draw.shuffle(kinds)
        for code, edit in kinds:
            prompt = _prompt(code, edit, draw)
            if prompt not in seen and len(seen) < count:
                seen.add(prompt)
                yield prompt


def _prompt(code: str, edit: str, draw: random.Random) -> str:
    noun = draw.choice(NOUNS)
    first, second, third = draw.sample(FIELDS, 3)
    number, another, last = draw.sample(range(10, 500), 3)
    names = {
        "verb": draw.choice(VERBS),
        "noun": noun,
        "Noun": noun.capitalize(),
        "first": first,
        "second": second,
        "third": third,
        "number": number,
        "another": another,
        "last": last,
        "new": draw.choice(NEW_NAMES),
    }
    return TEMPLATE.format(edit=edit.format(**names), code=code.format(**names))


def jsonl(count: int = COUNT, seed: int = SEED) -> str:
    """The content of the prompt file: one object with a `prompt` a line."""
    return "".join(json.dumps({"prompt": p}) + "\n" for p in prompts(count, seed))


if __name__ == "__main__":
    sys.stdout.write(jsonl())
