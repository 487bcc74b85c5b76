"""Text `code`: small edits of code that stands in the prompt.

Such an answer repeats most of its prompt, which is what n-gram speculation drafts from. The default
model copies such short lists of like lines reliably, where it rewrites longer functions at will, so
that the few prompts of a short window are like all others.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

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


def prompts(draw: random.Random) -> Iterator[str]:
    """Without end, the kinds of code and edit evenly mixed."""
    kinds = list(itertools.product(CODES, EDITS))
    while True:
        draw.shuffle(kinds)
        for code, edit in kinds:
            yield _prompt(code, edit, draw)


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
