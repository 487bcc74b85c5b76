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

FUNCTIONS = (
    """\
def {verb}_{noun}s({noun}s):
    {result} = []
    for {noun} in {noun}s:
        if {noun}.{field} > {factor}:
            {result}.append({noun}.{field})
    return {result}""",
    """\
def {verb}_{noun}({noun}, {limit}):
    {result} = {noun}.{field} + {factor}
    while {result} > {limit}:
        {result} = {result} - {limit}
    return {result}""",
    """\
def {verb}_{field}s({noun}s):
    {result} = {{}}
    for {noun} in {noun}s:
        key = {noun}.{field} // {factor}
        {result}[key] = {noun}
    return {result}""",
    """\
def {verb}_{noun}_lines(lines):
    {result} = []
    for line in lines:
        {field} = int(line.strip())
        {result}.append({field} + {factor})
    return {result}""",
    """\
def {verb}_{field}({noun}s, {limit}):
    {result} = 0
    for {noun} in {noun}s:
        {result} += {noun}.{field} * {factor}
        if {result} > {limit}:
            break
    return {result}""",
    """\
class {Noun}:
    def __init__(self, {field}):
        self.{field} = {field}

    def {verb}(self, {limit}):
        {result} = self.{field} * {factor}
        return min({result}, {limit})""",
    """\
def {verb}_{noun}_{field}({noun}, {limit}):
    {result} = float({noun}["{field}"])
    if {result} > {limit}:
        {result} = {limit} - {factor}
    return {result}""",
)
"""Functions of about 50 tokens."""

EDITS = (
    "Rename the variable `{result}` to `{new}`.",
    "Rename `{field}` to `{new}` everywhere.",
    "Add a one-line comment above the last `return`.",
    "Change the number {factor} to {other}.",
    "Add a line that prints `{result}` before the last `return`.",
    "Add type hints.",
)

VERBS = (
    *("adjust", "check", "collect", "count", "estimate", "filter", "find", "measure"),
    *("pick", "reduce", "scale", "select", "shift", "sum", "trim", "update"),
)
NOUNS = (
    *("account", "book", "cell", "device", "engine", "event", "order", "parcel"),
    *("planet", "player", "record", "room", "route", "sensor", "signal", "ticket"),
)
FIELDS = (
    *("age", "cost", "depth", "height", "length", "level", "load", "mass"),
    *("pages", "price", "rank", "score", "speed", "voltage", "weight", "width"),
)
RESULTS = ("kept", "output", "part", "result", "selected", "total", "value", "work")
LIMITS = ("bound", "ceiling", "cutoff", "limit", "maximum", "threshold")
NEW_NAMES = (
    *("answer", "amount", "chosen", "current", "figure", "found", "measure", "quantity"),
    *("reading", "remaining", "sample", "state"),
)

TEMPLATE = """\
{edit} Answer with the code only.

```python
{code}
```"""


def prompts(count: int = COUNT, seed: int = SEED) -> Iterator[str]:
    """`count` distinct prompts, the kinds of function and edit evenly mixed."""
    draw = random.Random(seed)
    kinds = list(itertools.product(FUNCTIONS, EDITS))
    seen: set[str] = set()
    while len(seen) < count:
        draw.shuffle(kinds)
        for function, edit in kinds:
            prompt = _prompt(function, edit, draw)
            if prompt not in seen and len(seen) < count:
                seen.add(prompt)
                yield prompt


def _prompt(function: str, edit: str, draw: random.Random) -> str:
    noun = draw.choice(NOUNS)
    factor, other = draw.sample(range(2, 100), 2)
    names = {
        "verb": draw.choice(VERBS),
        "noun": noun,
        "Noun": noun.capitalize(),
        "field": draw.choice(FIELDS),
        "result": draw.choice(RESULTS),
        "limit": draw.choice(LIMITS),
        "factor": factor,
        "other": other,
        "new": draw.choice(NEW_NAMES),
    }
    return TEMPLATE.format(edit=edit.format(**names), code=function.format(**names))


def jsonl(count: int = COUNT, seed: int = SEED) -> str:
    """The content of the prompt file: one object with a `prompt` a line."""
    return "".join(json.dumps({"prompt": p}) + "\n" for p in prompts(count, seed))


if __name__ == "__main__":
    sys.stdout.write(jsonl())
