"""The keeper of one server: a detached process that lives exactly as long as its session.

It holds the locks of the session's devices, starts the server, samples its load, and ends it
when it is told to (TERM, from `stop_server`) or when the Snakemake that owns the session is
gone, however it went. All that it knows goes into the session's record.

Run as `python -m crossover.server.supervisor` in the folder that holds the package, with a job
(JSON of `Job`) on standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from crossover import control, engines
from crossover.campaign import Variant, from_shell
from crossover.errors import StartupError, plain_errors
from crossover.server import (
    debts,
    device_lock,
    device_memory,
    environment,
    hidden_log,
    namespace,
    process_table,
    processes,
    sampling,
    session,
)
from crossover.server.ending import OutOfMemory, exit_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

EXIT_DEVICE_BUSY = 75
EXIT_OWNER_GONE = 76
SAMPLE_EVERY_S = 0.5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Job:
    """What a supervisor is to do."""

    folder: str
    session_id: str
    variant: dict[str, Any]
    trial: int
    facts: dict[str, Any]
    port: int | None
    owner: str
    handle: str
    record: str
    samples: str
    server_log: str


def log_of(server_log: str) -> Path:
    """The supervisor's own log, beside the server's."""
    path = Path(server_log)
    return path.with_name(f"supervisor-{path.name.removeprefix('server-')}")


# ------------------------------------------------------------------ the keeper


class Supervisor:
    """Runs one session from lock to proof of stop."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.variant = Variant.from_dict(job.variant)
        self.server: subprocess.Popen[bytes] | None = None
        self.namespace: list[str] = []
        self.log_copy: threading.Thread | None = None
        self.own_env = environment.own(self.variant)
        self.stop_command = environment.stop_command(self.variant, job.port, job.session_id)
        self.memory_before: dict[str, int] | None = None
        self.out_of_memory = OutOfMemory()
        self._events_r, self._events_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Keep the session; returns the exit status."""
        holder = {
            "supervisor": processes.identity(),
            "owner": self.job.owner,
            "variant": self.variant.name,
            "campaign": self.job.facts["campaign"],
            "folder": self.job.folder,
            "since": time.time(),
            "handle": os.path.abspath(self.job.handle),
            "owed": None,
        }
        if (locks := self._lock_devices(holder)) is None:
            return EXIT_DEVICE_BUSY
        self._catch_signals()
        if (owner_fd := self._open_owner()) is None:
            print("the run that asked for a server has ended: none is started")
            return EXIT_OWNER_GONE
        self.memory_before = device_memory.used_bytes(self.variant.devices)
        self._write_debts(locks, holder)
        self._start()
        stop_sampling = threading.Event()
        threading.Thread(target=self._sample, args=(stop_sampling,), daemon=True).start()
        reason = self._wait(owner_fd)
        stop_sampling.set()
        if self._stop(reason):
            for lock in locks.values():
                device_lock.write(lock, holder)
        if reason == "owner gone":  # nobody is left to stop it: the next run starts anew
            Path(self.job.handle).unlink(missing_ok=True)
        return 0

    def _lock_devices(self, holder: dict[str, Any]) -> dict[str, int] | None:
        locks = {}
        for device in sorted(self.variant.devices):
            deadline = time.monotonic() + 10.0
            while (lock := device_lock.acquire(device, holder)) is None:
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.05)
            locks[device] = lock
        return locks

    def _write_debts(self, locks: Mapping[str, int], holder: dict[str, Any]) -> None:
        """Before the start, so that they are known if nobody is left to pay them."""
        before = self.memory_before or {}
        for device, lock in locks.items():
            owed = debts.owed(self.stop_command, self.own_env, before.get(device))
            device_lock.write(lock, {**holder, "owed": owed})

    def _catch_signals(self) -> None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(self._events_w)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def _open_owner(self) -> int | None:
        if not processes.is_alive(self.job.owner):
            return None
        try:
            return os.pidfd_open(processes.pid_of(self.job.owner))
        except ProcessLookupError:
            return None

    def _start(self) -> None:
        job, started_at, started_s = self.job, time.time(), time.monotonic()
        command = environment.command_line(self.variant, job.port, job.session_id)
        if command is not None:
            self.namespace = namespace.prefix()
            self.server = self._launch([*self.namespace, *map(from_shell, command)])
        session.append(
            job.record,
            "started",
            **job.facts,
            session_id=job.session_id,
            command=command,
            env=self.own_env,
            inherited_env=environment.inherited(self.variant),
            gpu_memory_before_bytes=self.memory_before and list(self.memory_before.values()),
            started_at=started_at,
            started_s=started_s,
        )
        session.Handle(
            session_id=job.session_id,
            variant=self.variant.name,
            trial=job.trial,
            base_url=self.variant.url or f"http://127.0.0.1:{job.port}",
            port=job.port,
            pid=self.server.pid if self.server else None,
            supervisor=processes.identity(),
            owner=job.owner,
            started_at=started_at,
            started_s=started_s,
            record=job.record,
            samples=job.samples,
            server_log=job.server_log,
        ).write(job.handle)

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        env = {
            **environment.whole(self.own_env),
            processes.SESSION_MARK: self.job.session_id,
            processes.SUPERVISOR_MARK: processes.identity(),
        }
        hide = environment.hider(self.variant)
        log = open(self.job.server_log, "ab")  # noqa: SIM115  closed here, or by the thread
        try:
            server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if hide else log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            raise StartupError(
                f"{self.variant.name}: cannot run {command[0]!r}: {error.strerror}"
            ) from None
        if hide:
            self.log_copy = hidden_log.copy(server.stdout, log, hide)
        else:
            log.close()
        return server

    # -------------------------------------------------------------- while it lives

    def _wait(self, owner_fd: int) -> str:
        """Block until the session must end; returns why."""
        poll = select.poll()
        poll.register(self._events_r, select.POLLIN)
        poll.register(owner_fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == owner_fd:
                    return "owner gone"
                for number in os.read(self._events_r, 512):
                    if number != signal.SIGCHLD:
                        return "asked to stop"
                if self.server and self.server.poll() is not None:
                    return "server exited"
                self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Children that became ours (subreaper); the server's own status is Popen's to take."""
        for child in process_table.descendants(os.getpid(), recursive=False):
            if self.server is None or child.pid != self.server.pid:
                try:
                    os.waitpid(child.pid, os.WNOHANG)
                except ChildProcessError:
                    continue

    def _sample(self, stop: threading.Event) -> None:
        engine = engines.get(self.variant.engine)
        base_url = self.variant.url or f"http://127.0.0.1:{self.job.port}"
        Path(self.job.samples).parent.mkdir(parents=True, exist_ok=True)
        # of a container the processes are not below its command
        pid = self.server.pid if self.server and not self.stop_command else None
        cpu = sampling.ServerCpu(pid, engine.core_processes)
        with (
            open(self.job.samples, "a", buffering=1) as out,
            control.client(base_url, from_shell(self.variant.api_key or "") or None) as http,
            sampling.GpuLoad(self.variant.devices) as gpus,
        ):
            while not stop.wait(SAMPLE_EVERY_S):
                sample: dict[str, Any] = {
                    "t": time.monotonic(),
                    **cpu.read(),
                    **sampling.machine_cpu(),
                    **gpus.read(),
                }
                try:
                    gauges = engine.gauges(http)
                except Exception as error:  # any engine, any answer: a sample without gauges
                    sample["gauges_error"] = type(error).__name__
                else:
                    sample.update(vars(gauges))
                out.write(json.dumps(sample) + "\n")

    # -------------------------------------------------------------- the end and its proof

    def _stop(self, reason: str) -> bool:
        """End the server; returns whether it is proven that nothing of it is left."""
        begun, killed, exited = time.monotonic(), False, self._exit()
        # at once, so that nobody measures a server that is gone while the rest is proven
        with contextlib.suppress(OSError):  # on a full disk it must be stopped all the same
            session.append(self.job.record, "stopping", stop_reason=reason, **exited)
        stop_problem = self.stop_command and debts.run_stop_command(self.stop_command, self.own_env)
        if self.server is not None and self.server.poll() is None:
            if self.stop_command is None or stop_problem:
                self._terminate()
            try:
                self.server.wait(self.variant.stop_grace_s)
            except subprocess.TimeoutExpired:
                killed = True
                self.server.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.server.wait(5.0)
                if self.stop_command:  # what the command has started since it was first asked
                    stop_problem = debts.run_stop_command(self.stop_command, self.own_env)
        left = self._kill_rest() if self.server is not None else []
        if self.log_copy is not None:
            self.log_copy.join(5.0)
        port_closed = self.job.port is None or self._wait_port_closed()
        stop_s = time.monotonic() - begun
        after, memory_held = None, []
        if self.memory_before is not None:
            after, memory_held = device_memory.wait_until_back(
                self.memory_before, self.variant.stop_grace_s
            )
        session.append(
            self.job.record,
            "stopped",
            stop_reason=reason,
            **(exited or self._exit()),
            stopped_at=time.time(),
            stop_s=stop_s,
            killed=killed,
            processes_left=left,
            port_closed=port_closed,
            stop_problem=stop_problem,
            gpu_memory_after_bytes=after and list(after.values()),
            gpu_memory_held=memory_held,
        )
        return port_closed and not (left or stop_problem or memory_held)

    def _exit(self) -> dict[str, Any]:
        """Exit status of a server that has ended; nothing of one that runs or is not ours."""
        if self.server is None or (status := self.server.poll()) is None:
            return {}
        code = _signal_as_negative(status)
        out_of_memory = self.out_of_memory.since_start(code)
        return {"exit_code": code, "exit_reason": exit_reason(code, out_of_memory)}

    def _terminate(self) -> None:
        """TERM to the server itself, which knows best how to end its workers."""
        with contextlib.suppress(psutil.NoSuchProcess):
            outermost = psutil.Process(self.server.pid)
            # unshare does not pass TERM on; until it has forked there is only itself to end
            for process in (self.namespace and outermost.children()) or [outermost]:
                process.terminate()

    def _kill_rest(self) -> list[int]:
        """KILL what is left of the session; returns pids that survive even that."""
        for _ in range(5):
            ours = {p.pid for p in process_table.descendants(os.getpid())}
            ours |= set(processes.of_session(self.job.session_id)) - {os.getpid()}
            ours = {pid for pid in ours if processes.start_ticks(pid) is not None}
            if not ours:
                return []
            process_table.kill_all(ours)
            self._reap_orphans()
        return sorted(ours)

    def _wait_port_closed(self) -> bool:
        deadline = time.monotonic() + 5.0
        while processes.is_port_open("127.0.0.1", self.job.port):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _signal_as_negative(code: int) -> int:
    """128 + n is how the namespace's first process tells of signal n."""
    return 128 - code if 128 < code < 128 + signal.NSIG else code


def main() -> int:
    """Keep the session that the job on standard input describes."""
    with plain_errors():
        job = Job(**json.load(sys.stdin))
        os.chdir(job.folder)
        return Supervisor(job).run()


if __name__ == "__main__":
    sys.exit(main())
