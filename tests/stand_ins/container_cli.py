"""A stand-in for the `docker` command, in front of container_daemon.py.

    container_cli.py SOCKET run --name NAME COMMAND…    attached: ends with the container
    container_cli.py SOCKET stop NAME                   1 where there is none
    container_cli.py SOCKET rm --force NAME             0 where there is none

As Docker's, `run` passes TERM on, and its own KILL leaves the container alone.
"""

import json
import signal
import socket
import sys
import threading

path, verb, *words = sys.argv[1:]


def ask(**request):
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.connect(path)
        daemon.sendall(json.dumps(request).encode() + b"\n")
        return int(daemon.makefile().readline())


if verb == "run":
    name = words[1]

    def pass_on(number, _):
        threading.Thread(target=ask, kwargs={"kill": name, "signal": number}).start()

    signal.signal(signal.SIGTERM, pass_on)
    sys.exit(ask(run=name, command=words[2:]))
if verb == "stop":
    sys.exit(ask(kill=words[0], signal=signal.SIGTERM))
ask(kill=words[1], signal=signal.SIGKILL)
