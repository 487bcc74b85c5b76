"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_json(value: Any, path: str | os.PathLike[str]) -> None:
    """Write JSON (no NaN) so that `path` is either absent, the old one, or whole."""
    write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", path)


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write text so that `path` is either absent, the old one, or whole."""
    with replacing(path) as temporary:
        temporary.write_text(text)


class replacing:
    """A temporary path that takes the place of `path` when the block ends well."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.temporary

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.temporary.unlink(missing_ok=True)
            return
        with open(self.temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(self.temporary, self.path)
