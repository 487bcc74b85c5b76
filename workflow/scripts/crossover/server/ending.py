"""How a server ended: its exit status in words, and what the kernel says of a lack of memory."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from crossover.server import processes, session
from crossover.server.session import Handle, log_tail

_KERNEL_LOG = Path("/dev/kmsg")
_COUNTS = (
    # of this process's control group (version 2), else of the whole host
    ("memory.events", r"^oom_kill (\d+)$"),
    ("/proc/vmstat", r"^oom_kill (\d+)$"),
)


def ended(handle: Handle, what: str = "the server is gone") -> str | None:
    """How the server of a handle ended, with the last lines of its log; None: it lives.

    Args:
        handle: of a server that was started.
        what: begins the sentence.
    """
    facts = session.read(handle.record)
    reason = facts.get("stop_reason")
    if reason is None and processes.is_alive(handle.supervisor):
        return None
    if reason is None:
        how = "its supervisor was killed, and the server with it"
    elif reason == "server exited":
        how = f"it ended by itself: {facts['exit_reason']}"
    else:
        how = facts.get("hung", f"it was stopped: {reason}")
    return (
        f"{handle.variant}: {what}; {how}; last lines of {handle.server_log}:\n"
        f"{log_tail(handle.server_log)}"
    )


def exit_reason(code: int, out_of_memory: str | None) -> str:
    """An exit status in words.

    Args:
        code: negative: the signal that ended it.
        out_of_memory: what is known of a lack of memory, as `OutOfMemory.since_start` says it.
    """
    how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
    return f"{how}; {out_of_memory}" if out_of_memory else how


class OutOfMemory:
    """Whether the kernel has killed for lack of memory since this was made."""

    def __init__(self) -> None:
        self._count = _kills_counted()
        try:
            self._kernel_log = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._kernel_log, 0, os.SEEK_END)
        except OSError:
            self._kernel_log = None

    def since_start(self, code: int) -> str | None:
        """What the kernel says, for a server that ended with `code`; None: nothing to say."""
        for record in self._new_records():
            if found := re.search(r"out of memory: Killed process.*", record, re.IGNORECASE):
                return f"the kernel's log says: {found[0]}"
        count = _kills_counted()
        if self._count is not None and count is not None and count > self._count:
            return (
                "the kernel killed a process for lack of memory meanwhile; its log, which names "
                "the process, is not readable here (`dmesg` on the host shows it)"
            )
        if code != -signal.SIGKILL:
            return None
        if count is None:
            return "whether for lack of memory cannot be read here (`dmesg` on the host shows it)"
        return "not for lack of memory, by the kernel's count"

    def _new_records(self) -> Iterator[str]:
        """Records that the kernel's log got since the start; none where it is not readable."""
        while self._kernel_log is not None:
            try:
                yield os.read(self._kernel_log, 8192).decode(errors="replace")
            except BrokenPipeError:  # overwritten while it was read: the next one follows
                continue
            except OSError:  # BlockingIOError: that was all
                return


def _kills_counted() -> int | None:
    for name, pattern in _COUNTS:
        try:
            text = (_control_group() / name).read_text()
        except OSError:
            continue
        if found := re.search(pattern, text, re.MULTILINE):
            return int(found[1])
    return None


def _control_group() -> Path:
    """Folder of this process's control group, version 2."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            return Path("/sys/fs/cgroup") / line.removeprefix("0::/")
    return Path("/sys/fs/cgroup")
