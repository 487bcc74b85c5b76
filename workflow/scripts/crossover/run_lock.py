"""Whether another run works in this folder: by a lock that the kernel drops with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from pathlib import Path


def claim(*, cluster: bool, folder: str | Path = ".snakemake") -> bool:
    """Mark this run as live, and drop a directory lock that a killed Snakemake left behind.

    Snakemake's own lock carries no pid, so after a KILL it refuses every later run. It is
    dropped only when no run is live here, and neither that run nor this one uses a cluster,
    whose jobs outlive the run that submitted them: then it is said what to do.

    Returns: whether this run is alone in the folder.
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    # never closed: the kernel drops the lock with this process; programs it starts do not get it
    fd = os.open(folder / "live.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except OSError:  # another run is live, or the file system has no locks
        alone = False
    left = folder / "locks"
    if not any(left.glob("*.lock")):
        os.pwrite(fd, b"c" if cluster else b"l", 0)
    elif alone and not cluster and os.pread(fd, 1, 0) != b"c":
        shutil.rmtree(left, ignore_errors=True)
        left.mkdir(exist_ok=True)
    elif alone:
        print(
            "crossover: an earlier run was killed here, and jobs that it had submitted to a "
            "cluster may still wait or run; when none does, `snakemake --unlock`, then the same "
            "command",
            file=sys.stderr,
        )
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH)  # all live runs share it
    return alone
