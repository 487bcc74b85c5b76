"""Memory of the stand-in's GPUs: a process holds it until it ends, as a driver has it.

Each holder locks a file of its own beside the file that STAND_IN_NVML names; what the kernel has
unlocked is free. Whoever looks sees the holder's pid in its own PID namespace.
"""

import fcntl
import json
import os
import struct
import tempfile
from pathlib import Path

_LOCK = "hhqqi0q"  # struct flock: type, whence, start, length, pid


def hold(gpu, size):
    """Take `size` bytes of a GPU until this process ends."""
    folder = _folder(os.environ["STAND_IN_NVML"])
    folder.mkdir(exist_ok=True)
    fd, _ = tempfile.mkstemp(prefix=f"gpu{gpu}-", dir=folder)
    os.write(fd, json.dumps(size).encode())
    fcntl.lockf(fd, fcntl.LOCK_EX)


def held(gpu, driver_file=None):
    """Bytes of a GPU by the pid that holds them."""
    found = {}
    for path in _folder(driver_file or os.environ["STAND_IN_NVML"]).glob(f"gpu{gpu}-*"):
        with open(path, "rb") as file:
            asked = struct.pack(_LOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, pid = struct.unpack(_LOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
            if kind != fcntl.F_UNLCK:
                found[pid] = found.get(pid, 0) + json.load(file)
    return found


def _folder(driver_file):
    return Path(driver_file).with_suffix(".held")
