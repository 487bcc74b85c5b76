"""Text `fixed-length`: plain sentences, cut at a number of tokens.

Every word and every full stop is one token to the tokenizers in common use, so the length is right
without asking one. What a request adds is not counted: its first line and the chat template. What
the server counted is in the points' `prompt_tokens_mean`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

LEAST_TOKENS = 8
"""Shorter prompts soon repeat, and none may come twice."""

ARTICLES = ("The", "This", "Every", "Some", "One", "Another")
QUALITIES = (
    *("old", "young", "small", "large", "quiet", "strong", "new", "good", "long", "dark", "open"),
    *("free", "cold", "warm", "simple", "heavy", "early", "late", "happy", "local"),
)
THINGS = (
    *("house", "river", "teacher", "garden", "road", "book", "city", "doctor", "table", "window"),
    *("story", "horse", "market", "village", "letter", "bridge", "forest", "station", "child"),
    *("friend", "ship", "school", "room", "tree", "song", "clock", "door", "field", "king"),
)
DEEDS = (
    *("found", "followed", "left", "saw", "loved", "changed", "needed", "reached", "kept"),
    *("built", "watched", "remembered", "crossed", "opened", "heard", "knew", "moved", "held"),
)
PLACES = ("near", "behind", "under", "beside", "before", "after", "without", "with", "above")


def prompts(draw: random.Random, tokens: int) -> Iterator[str]:
    """Without end, each of `tokens` tokens."""
    while True:
        sentences = itertools.chain.from_iterable(_sentence(draw) for _ in itertools.count())
        yield " ".join(itertools.islice(sentences, tokens)).replace(" .", ".")


def _sentence(draw: random.Random) -> tuple[str, ...]:
    """Eleven words and a full stop."""
    return (
        *(draw.choice(ARTICLES), draw.choice(QUALITIES), draw.choice(THINGS), draw.choice(DEEDS)),
        *("the", draw.choice(QUALITIES), draw.choice(THINGS)),
        *(draw.choice(PLACES), "the", draw.choice(QUALITIES), draw.choice(THINGS), "."),
    )
