"""Digests of plain data: equal settings give equal paths."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(value: Any) -> str:
    """JSON with sorted keys and one spelling a number: equal configs give equal strings."""
    return json.dumps(one_spelling(value), sort_keys=True, separators=(",", ":"))


def digest(value: Any) -> str:
    """Eight hex digits that stand for `value` in a path."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:8]


def one_spelling(value: Any) -> Any:
    """The value with whole numbers as int and sequences as lists, however deep they stand."""
    if isinstance(value, Mapping):
        return {key: one_spelling(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [one_spelling(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
