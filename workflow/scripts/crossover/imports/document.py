"""A result file, read once: its JSON objects or its table, or why it holds neither."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Document:
    """What a file holds. `objects` and `rows` are None where it is no JSON or no table.

    JSON may be one object, a list of them, or one a line (JSONL).
    """

    path: Path
    objects: list[Mapping[str, Any]] | None
    no_json: str
    rows: list[Mapping[str, str]] | None
    columns: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Document:
        """Read a file; what is wrong with it stands in `no_json`."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not UTF-8 text"
            return cls(path, None, f"cannot be read: {why}", None)
        if not text.strip():
            return cls(path, None, "the file is empty", None)
        objects, no_json = _json(text)
        if objects is not None:
            return cls(path, objects, "", None)
        reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
        columns = tuple((name or "").strip() for name in reader.fieldnames or ())
        reader.fieldnames = columns
        return cls(path, None, no_json, list(reader), columns)

    def lacking(self, *keys: str) -> str | None:
        """Why the file is not JSON whose objects all have these keys; None: it is."""
        if self.objects is None:
            return self.no_json
        for place, found in enumerate(self.objects, start=1):
            if missing := [key for key in keys if key not in found]:
                where = f"object {place} lacks " if len(self.objects) > 1 else "lacks "
                return where + ", ".join(missing)
        return None

    def source(self, place: int) -> str:
        """Name of the object or row at `place`, from 0, for messages and records."""
        return f"{self.path}:{place + 1}" if len(self.objects or self.rows) > 1 else str(self.path)


def _json(text: str) -> tuple[list[Mapping[str, Any]] | None, str]:
    """(objects, why there are none)."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        try:
            value = [json.loads(line) for line in text.splitlines() if line.strip()]
        except json.JSONDecodeError:
            return None, f"not JSON (line {error.lineno}: {error.msg})"
    objects = value if isinstance(value, list) else [value]
    if not objects or not all(isinstance(one, Mapping) for one in objects):
        return None, "JSON, but no objects"
    return objects, ""
