"""The keeper of one server: a detached process that lives exactly as long as its session.

It holds the locks of the session's devices, starts the server, samples its load, and ends it
when it is told to (TERM, from `stop_server`) or when the Snakemake that owns the session is
gone, however it went. All that it knows goes into the session's record.

Run as `python -m crossover.server.supervisor` with a job (JSON of `Job`) on standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from crossover import control, engines
from crossover.campaign import Variant, from_shell
from crossover.engines.flags import fill
from crossover.errors import StartupError, plain_errors
from crossover.server import device_lock, namespace, processes, session

EXIT_DEVICE_BUSY = 75
SAMPLE_EVERY_S = 0.5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Job:
    """What a supervisor is to do."""

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


# ------------------------------------------------------------------ what the server is given


def own_environment(variant: Variant) -> dict[str, str]:
    """Variables that the server gets besides ours: the engine's, the variant's, the devices'.

    Values are as written in the config: `${NAME}` is not replaced yet.
    """
    own = {**engines.get(variant.engine).environment(variant), **variant.env}
    gpus = [d.removeprefix("gpu") for d in variant.devices if re.fullmatch(r"gpu\d+", d)]
    if gpus:
        own.setdefault("CUDA_VISIBLE_DEVICES", ",".join(gpus))
    return own


def command_line(variant: Variant, port: int | None) -> list[str] | None:
    """The variant's command with all placeholders filled; None: nothing is started."""
    command = engines.get(variant.engine).command(variant, variant.model)
    if command is None:
        return None
    return fill(
        command,
        port=port,
        model=variant.model.path or variant.model.name,
        model_name=variant.model.name,
        python=sys.executable,
        engines=Path(engines.__file__).parent,
        name=f"crossover-{variant.name}",
    )


# ------------------------------------------------------------------ the keeper


class Supervisor:
    """Runs one session from lock to proof of stop."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.variant = Variant.from_dict(job.variant)
        self.server: subprocess.Popen[bytes] | None = None
        self.namespace: list[str] = []
        self._events_r, self._events_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Keep the session; returns the exit status."""
        if (locks := self._lock_devices()) is None:
            return EXIT_DEVICE_BUSY
        self._catch_signals()
        owner_fd = self._open_owner()
        self._start()
        stop_sampling = threading.Event()
        threading.Thread(target=self._sample, args=(stop_sampling,), daemon=True).start()
        reason = self._wait(owner_fd)
        stop_sampling.set()
        self._stop(reason)
        if reason == "owner gone":  # nobody is left to stop it: the next run starts anew
            Path(self.job.handle).unlink(missing_ok=True)
        del locks
        return 0

    def _lock_devices(self) -> list[int] | None:
        holder = {
            "supervisor": processes.identity(),
            "owner": self.job.owner,
            "variant": self.variant.name,
            "campaign": self.job.facts["campaign"],
            "folder": os.getcwd(),
            "since": time.time(),
            "handle": os.path.abspath(self.job.handle),
        }
        locks = []
        for device in sorted(self.variant.devices):
            deadline = time.monotonic() + 10.0
            while (lock := device_lock.acquire(device, holder)) is None:
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.05)
            locks.append(lock)
        return locks

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
        own_env = own_environment(self.variant)
        command = command_line(self.variant, job.port)
        if command is not None:
            self.namespace = namespace.prefix()
            self.server = self._launch([*self.namespace, *map(from_shell, command)], own_env)
        session.append(
            job.record,
            "started",
            **job.facts,
            session_id=job.session_id,
            command=command,
            env=own_env,
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

    def _launch(self, command: list[str], own_env: dict[str, str]) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            **{name: from_shell(value) for name, value in own_env.items()},
            processes.SESSION_MARK: self.job.session_id,
            processes.SUPERVISOR_MARK: processes.identity(),
        }
        with open(self.job.server_log, "ab") as log:
            try:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=env,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            except OSError as error:
                raise StartupError(
                    f"{self.variant.name}: cannot run {command[0]!r}: {error.strerror}"
                ) from None

    # -------------------------------------------------------------- while it lives

    def _wait(self, owner_fd: int | None) -> str:
        """Block until the session must end; returns why."""
        if owner_fd is None:
            return "owner gone"
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
        for child in processes.descendants(os.getpid(), recursive=False):
            if self.server is None or child.pid != self.server.pid:
                try:
                    os.waitpid(child.pid, os.WNOHANG)
                except ChildProcessError:
                    continue

    def _sample(self, stop: threading.Event) -> None:
        engine = engines.get(self.variant.engine)
        base_url = self.variant.url or f"http://127.0.0.1:{self.job.port}"
        Path(self.job.samples).parent.mkdir(parents=True, exist_ok=True)
        cpu = ServerCpu(self.server.pid if self.server else None)
        with (
            open(self.job.samples, "a", buffering=1) as out,
            control.client(base_url, from_shell(self.variant.api_key or "") or None) as http,
        ):
            while not stop.wait(SAMPLE_EVERY_S):
                sample: dict[str, Any] = {"t": time.monotonic(), **cpu.read(), **machine_cpu()}
                try:
                    gauges = engine.gauges(http)
                except Exception as error:  # any engine, any answer: a sample without gauges
                    sample["gauges_error"] = type(error).__name__
                else:
                    sample.update(vars(gauges))
                out.write(json.dumps(sample) + "\n")

    # -------------------------------------------------------------- the end and its proof

    def _stop(self, reason: str) -> None:
        begun, killed = time.monotonic(), False
        exit_code = None
        if self.server is not None:
            if self.server.poll() is None:
                self._terminate()
                try:
                    self.server.wait(self.variant.stop_grace_s)
                except subprocess.TimeoutExpired:
                    killed = True
                    self.server.kill()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.server.wait(5.0)
            left = self._kill_rest()
            exit_code = self.server.poll()
        else:
            left = []
        port_closed = self.job.port is None or self._wait_port_closed()
        session.append(
            self.job.record,
            "stopped",
            stopped_at=time.time(),
            stop_s=time.monotonic() - begun,
            stop_reason=reason,
            exit_code=_signal_as_negative(exit_code),
            killed=killed,
            processes_left=left,
            port_closed=port_closed,
        )

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
            ours = {p.pid for p in processes.descendants(os.getpid())}
            ours |= set(processes.of_session(self.job.session_id)) - {os.getpid()}
            ours = {pid for pid in ours if processes.start_ticks(pid) is not None}
            if not ours:
                return []
            processes.kill_all(ours)
            self._reap_orphans()
        return sorted(ours)

    def _wait_port_closed(self) -> bool:
        deadline = time.monotonic() + 5.0
        while processes.is_port_open("127.0.0.1", self.job.port):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


class ServerCpu:
    """CPU seconds of all processes of a server that run, plus those of its children that ended."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid

    def read(self) -> dict[str, float | None]:
        """`server_cpu_s`, cumulative; None where there is no server of ours."""
        if self.pid is None:
            return {"server_cpu_s": None}
        total = 0.0
        try:
            root = psutil.Process(self.pid)
            for process in [root, *root.children(recursive=True)]:
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                total += times.user + times.system + times.children_user + times.children_system
        except psutil.NoSuchProcess:
            return {"server_cpu_s": None}
        return {"server_cpu_s": total}


def machine_cpu() -> Mapping[str, float]:
    """Busy CPU seconds of the whole machine since boot, and how many cores it has."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # guest time is contained in user time
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return {"machine_busy_s": sum(times) - guest - idle, "machine_cores": os.cpu_count()}


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _signal_as_negative(code: int | None) -> int | None:
    """128 + n is how the namespace's first process tells of signal n."""
    return 128 - code if code is not None and 128 < code <= 128 + signal.NSIG else code


def main() -> int:
    """Keep the session that the job on standard input describes."""
    with plain_errors():
        return Supervisor(Job(**json.load(sys.stdin))).run()


if __name__ == "__main__":
    sys.exit(main())
