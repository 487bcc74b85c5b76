"""What the process needs for a run: a file for every connection."""

from __future__ import annotations

import fcntl
import os
import resource

from crossover.errors import MeasurementError

_SPARE_FILES = 64


def allow_connections(number: int) -> None:
    """Raise the limit of open files so that `number` connections fit, and make room for them.

    In a process with threads the kernel's table of open files grows, at 64, 256 and so on, by a
    wait of some 10 ms (measured): here and not when a request is due.

    Raises:
        MeasurementError: the hard limit is lower.
    """
    needed = number + _SPARE_FILES
    _raise_limit(needed)
    with open(os.devnull) as file:
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, needed - 1))


def _raise_limit(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise MeasurementError(
            f"{needed} open files are needed for this concurrency and this process may have "
            f"{hard}; raise the hard limit (ulimit -Hn) or measure lower levels"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
