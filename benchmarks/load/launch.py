"""Run a command and write down what it took; a program of the standard library alone.

python -I -S launch.py ENDED PRINTED ERRORS TIMEOUT_S COMMAND …
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple


class Ended(NamedTuple):
    """A process that has ended, with the children that it waited for.

    peak_rss_mib: of the largest of them.
    exit_code: negative: the signal that ended it.
    """

    started_ns: int
    ended_ns: int
    cpu_s: float
    peak_rss_mib: float
    exit_code: int
    printed: str


def main() -> None:
    ended, printed, errors, timeout_s, *words = sys.argv[1:]
    with open(printed, "wb") as out, open(errors, "wb") as said:
        started_ns = time.monotonic_ns()
        process = subprocess.Popen(words, stdout=out, stderr=said, start_new_session=True)
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, float(timeout_s))
        _, status, used = os.wait4(process.pid, 0)
        ended_ns = time.monotonic_ns()
    with open(ended, "w") as file:
        facts = {
            "started_ns": started_ns,
            "ended_ns": ended_ns,
            "cpu_s": used.ru_utime + used.ru_stime,
            "peak_rss_mib": used.ru_maxrss / 1024,
            "exit_code": os.waitstatus_to_exitcode(status),
        }
        json.dump(facts, file)


if __name__ == "__main__":
    main()
