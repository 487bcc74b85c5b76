"""Process 1 of a server's namespace: passes TERM on, reaps orphans, ends with the server."""

import os
import signal
import sys


def main() -> None:
    """Run the command in argv as a child, and outlive it only to pass its status on."""
    server = os.fork()
    if server == 0:
        os.setsid()
        os.execvp(sys.argv[1], sys.argv[1:])
    for passed_on in (signal.SIGTERM, signal.SIGINT):
        signal.signal(passed_on, lambda number, _: os.kill(server, number))
    while True:
        pid, status = os.wait()
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
