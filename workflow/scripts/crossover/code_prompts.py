"""Prompts for the workload `code`: small edits of code that stands in the prompt.

Such an answer repeats most of its prompt, which is what n-gram speculation drafts from. The default
model copies such short lists of like lines reliably, where it rewrites longer functions at will, so
that the few prompts of a short window are like all others. Code and edits are written for this
project; names and numbers are drawn, so that no two prompts are equal. The drawing is seeded: the
same arguments give the same bytes.

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
def {verb}_{noun}(old, new):
    new.{first} = old.{first}
    new.{second} = old.{second}
    new.{third} = old.{third}
    new.{fourth} = old.{fourth}
    return new""",
    """\
def {verb}_{noun}({noun}):
    return {{
        "{first}": {noun}.{first},
        "{second}": {noun}.{second},
        "{third}": {noun}.{third},
        "{fourth}": {noun}.{fourth},
    }}""",
    """\
def {verb}_{noun}({noun}):
    print("{first}", {noun}.{first})
    print("{second}", {noun}.{second})
    print("{third}", {noun}.{third})
    print("{fourth}", {noun}.{fourth})""",
)
"""Pieces of about 50 tokens, so that an answer of 48 is all code."""

EDITS = (
    "Rename `{second}` to `{new}`.",
    "Rename `{third}` to `{new}`.",
    "Remove the line with `{second}`.",
    "Remove the line with `{third}`.",
    "Add a comment above the line with `{second}`.",
    "Add a comment above the line with `{third}`.",
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
    first, second, third, fourth = draw.sample(FIELDS, 4)
    names = {
        "verb": draw.choice(VERBS),
        "noun": noun,
        "first": first,
        "second": second,
        "third": third,
        "fourth": fourth,
        "new": draw.choice(NEW_NAMES),
    }
    return TEMPLATE.format(edit=edit.format(**names), code=code.format(**names))


def jsonl(count: int = COUNT, seed: int = SEED) -> str:
    """The content of the prompt file: one object with a `prompt` a line."""
    return "".join(json.dumps({"prompt": p}) + "\n" for p in prompts(count, seed))


if __name__ == "__main__":
    sys.stdout.write(jsonl())
