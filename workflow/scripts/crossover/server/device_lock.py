"""One server at a time on a device of this host: a kernel lock that ends with its holder."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from crossover.errors import DeviceBusyError
from crossover.server import processes


def path(device: str) -> Path:
    """The lock file of a device, the same for all checkouts and users of this host."""
    folder = Path(os.environ.get("CROSSOVER_LOCK_DIR", "/tmp/crossover-devices"))
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
    return folder / f"{device}.lock"


def try_lock(device: str) -> int | None:
    """Lock a device: the open file that carries the lock until it is closed; None: it is held."""
    fd = _open(device)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def acquire(device: str, holder: dict) -> int | None:
    """As `try_lock`, and write down who holds it; None too where its last holder left a debt."""
    fd = try_lock(device)
    if fd is not None:
        if (last := read(fd)) and last.get("owed"):
            os.close(fd)
            return None
        write(fd, holder)
    return fd


def write(fd: int, holder: dict) -> None:
    """Write down who holds a locked device; it stays there when the lock is gone."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(holder).encode(), 0)


def read(fd: int) -> dict | None:
    """Who holds, or last held, a locked device; None: nobody yet."""
    try:
        return json.loads(os.pread(fd, 65536, 0))
    except ValueError:  # empty, or cut off by a power cut
        return None


def holder(device: str) -> dict | None:
    """Who holds a device now, as written by `acquire`; None: it is free."""
    fd = _open(device)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        while (held := read(fd)) is None:  # it is being written
            time.sleep(0.01)
        return held
    else:
        return None
    finally:
        os.close(fd)


def _open(device: str) -> int:
    file = path(device)
    try:
        if file.exists():
            return os.open(file, os.O_RDWR | os.O_CLOEXEC)
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.fchmod(fd, 0o666)  # whatever the umask: other users lock the same device
    except OSError as error:
        raise DeviceBusyError(
            f"cannot open the lock of device {device}, {file} ({error.strerror}); "
            "remove it, or name another folder by CROSSOVER_LOCK_DIR"
        ) from None
    return fd


def is_reclaimable(held: dict, owner: str) -> bool:
    """Whether the holder belongs to this run, or to a run that is gone."""
    return held["owner"] == owner or not processes.is_alive(held["owner"])
