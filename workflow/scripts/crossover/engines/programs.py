"""Whether the programs that a variant names can be run here."""

from __future__ import annotations

import shutil

from crossover.errors import EngineError


def refuse_missing(key: str, program: str, advice: str) -> None:
    """Raise EngineError unless there is a program as the variant's `key` names it."""
    if shutil.which(program) is None:
        raise EngineError(f"{key}: {program!r} is no program that can be run here; {advice}")
