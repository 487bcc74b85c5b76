"""What a format of result files is: how a file is known, and how its runs are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from crossover.imports.document import Document
from crossover.imports.run import Run


class Format(ABC):
    """One kind of file. Where nothing else is said: JSON objects with these keys, a run each."""

    name: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()

    def mismatch(self, document: Document) -> str | None:
        """Why the file is not of this format; None: it is."""
        return document.lacking(*self.keys)

    def read(self, document: Document) -> list[Run]:
        """The runs of a file that matches.

        Raises:
            ResultFileError: a value cannot be used; names the file and the line.
        """
        return [self.run(found, document.path, source) for source, found in self.parts(document)]

    def parts(self, document: Document) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What holds a run each, with its name for messages and records."""
        for place, found in enumerate(document.objects):
            yield document.source(place), found

    @abstractmethod
    def run(self, found: Mapping[str, Any], path: Path, source: str) -> Run:
        """The run that a part holds, of the file at `path`."""
