"""A stand-in for a container runtime's daemon: it runs commands that outlive whoever asked.

    container_daemon.py SOCKET

A request is one line of JSON. {"run": NAME, "command": […]} is answered when the container has
ended, with its status; {"kill": NAME, "signal": N} at once. A container inherits no environment.
"""

import json
import os
import signal
import socketserver
import subprocess
import sys

containers = {}


class Request(socketserver.StreamRequestHandler):
    def handle(self):
        asked = json.loads(self.rfile.readline())
        if "run" in asked:
            container = subprocess.Popen(
                asked["command"],
                env={"PATH": os.environ["PATH"]},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            containers[asked["run"]] = container
            status = container.wait()
            del containers[asked["run"]]
            status = status if status >= 0 else 128 - status
        elif container := containers.get(asked["kill"]):
            container.send_signal(asked["signal"])
            container.wait()
            status = 0
        else:
            status = 1
        try:
            self.wfile.write(f"{status}\n".encode())
        except BrokenPipeError:
            return


class Daemon(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


with Daemon(sys.argv[1], Request) as daemon:
    print("up", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    daemon.serve_forever()
