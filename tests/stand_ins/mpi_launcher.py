"""A stand-in for `mpirun`: it starts ranks in sessions of their own and passes TERM on to them.

    mpi_launcher.py LOG RANKS COMMAND…    rank 0 is COMMAND, the others wait for TERM

It writes into LOG who sent TERM to whom, and ends when its ranks have ended.
"""

import json
import os
import signal
import subprocess
import sys

WAIT = """
import json, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("up", flush=True)
sent_by = signal.sigwaitinfo({signal.SIGTERM}).si_pid
with open(sys.argv[1], "a") as log:
    log.write(json.dumps({"rank": os.getpid(), "launcher": os.getppid(), "from": sent_by}) + "\\n")
"""

log, count, *command = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def default_signals():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


ranks = [subprocess.Popen(command, start_new_session=True, preexec_fn=default_signals)]
for _ in range(int(count) - 1):
    rank = subprocess.Popen(
        [sys.executable, "-c", WAIT, log], start_new_session=True, stdout=subprocess.PIPE
    )
    rank.stdout.readline()
    ranks.append(rank)
signal.sigwait({signal.SIGTERM})
for rank in ranks:
    rank.terminate()
statuses = [rank.wait() for rank in ranks]
with open(log, "a") as file:
    file.write(json.dumps({"launcher": os.getpid(), "ranks_ended": len(statuses)}) + "\n")
