"""What a person sees while a campaign runs: one line that is rewritten, on a terminal only."""

from __future__ import annotations

import contextlib
import os
import sys
from types import TracebackType
from typing import Self

_SNAKEMAKE_STDERR = 3  # the rules' `3>&2`: a job's own stderr goes to its log


class Terminal:
    """The terminal of the run that a job belongs to.

    `show` rewrites one line there; where the run's output goes to a file nothing is written but
    what `say` gives, without control characters.
    """

    def __init__(self, fd: int = _SNAKEMAKE_STDERR) -> None:
        self._out = None
        with contextlib.suppress(OSError):
            self._out = os.fdopen(os.dup(fd), "w", buffering=1)
        self._rewrites = self._out is not None and self._out.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._out is not None:
            if self._rewrites:
                self._out.write("\r\x1b[2K")
            self._out.close()

    def show(self, line: str) -> None:
        """Replace the line shown; on anything but a terminal: nothing."""
        if self._rewrites:
            width = os.get_terminal_size(self._out.fileno()).columns or 80
            self._out.write(f"\r\x1b[2K{line[: width - 1]}")
            self._out.flush()

    def say(self, line: str) -> None:
        """A line that stays, wherever the run's output goes, and in the job's log."""
        print(line, file=sys.stdout, flush=True)
        if self._out is not None:
            self._out.write(f"\r\x1b[2K{line}\n" if self._rewrites else f"{line}\n")


def duration(seconds: float) -> str:
    """Seconds as people say them: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
