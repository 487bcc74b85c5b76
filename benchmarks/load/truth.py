"""The ground-truth server and the arrival records that it and the clients leave."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

import numpy as np

SOURCES = Path(__file__).parent

ARRIVAL = np.dtype([("request", "<u4"), ("event", "<u4"), ("ns", "<i8")])
"""Event 0 is the request, 1, 2, … are its tokens; CLOCK_MONOTONIC ns (see arrivals.h)."""


def compile_to(folder: Path) -> None:
    """Compile `truth_server` and `floor` into a folder.

    Raises:
        SystemExit: there is no C compiler, or it refuses the source.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit(
            "no C compiler (cc, gcc or clang) is on the PATH: the ground-truth server is C and is "
            "compiled here; install one, e.g. the Debian package gcc"
        )
    for name in ("truth_server", "floor"):
        words = [compiler, "-std=gnu11", "-O2", "-Wall", "-o", folder / name, SOURCES / f"{name}.c"]
        if subprocess.run(words).returncode:
            raise SystemExit(
                f"{compiler} does not compile {SOURCES / name}.c; see its errors above"
            )


class Server:
    """A ground-truth server for the length of a `with` block; `arrivals()` when it is over.

    It has the machine's last core for itself if there is more than one (see `client_cores`).
    """

    def __init__(self, folder: Path, ttft_ms: float, itl_ms: float) -> None:
        self._file = folder / "truth"
        self._words = [folder / "truth_server", str(ttft_ms), str(itl_ms), self._file]

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(self._words, stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(self._process.pid, _CORES[-1:])
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.stdout.close()
        if self._process.wait() and kind is None:
            raise RuntimeError("the ground-truth server failed; see its message above")

    def arrivals(self) -> np.ndarray:
        """What it sent, in order of sending."""
        return np.fromfile(self._file, ARRIVAL)


_CORES = sorted(os.sched_getaffinity(0))


def client_cores() -> list[int]:
    """The cores that clients may use: all but the server's; the only one where there is one."""
    return _CORES[:-1] or _CORES
