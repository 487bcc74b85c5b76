"""The log of a `script:`."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from crossover.errors import plain_errors


@contextlib.contextmanager
def logged_to(path: str) -> Iterator[None]:
    """Send what a script prints, and how it failed, to its log, which Snakemake then shows."""
    with (
        open(path, "w", buffering=1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            with plain_errors():
                yield
        except SystemExit as ended:
            print(ended.code, file=log)
            raise SystemExit(1) from None
        except Exception:
            traceback.print_exc(file=log)
            raise SystemExit(1) from None
