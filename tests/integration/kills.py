"""Ways to end a run, moments at which to do it, and what must be true afterwards.

A run's processes are told from others by the folder of its device locks in their environment,
which every child inherits, or by their working folder: not by the marks that the product uses.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from integration.gpus import memory_held
from integration.workflow_copy import SNAKEMAKE, Workflow

AFTERMATH_S = 10.0
"""Within this time after a kill nothing of the run may be left."""

COMMAND = ("-c1", "reports/crossover.html")


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """What `condition` returns once that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never seen: {what}"
        time.sleep(0.01)
    return found


# ------------------------------------------------------------------ a run and its processes


class Run:
    """`snakemake -c1 reports/crossover.html` in the foreground of a terminal of its own."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self._output = workflow.folder / "output.txt"
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [*SNAKEMAKE, *COMMAND],
                cwd=workflow.folder,
                env=workflow.env,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # a process started by `&` of a script ignores SIGINT, and would hand that on
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        """All processes of the run, daemonised ones included, zombies excluded."""
        return processes_of(self.workflow)

    def running(self, program: str) -> psutil.Process | None:
        """The process that runs a script or a module of this name; None: there is none."""
        for process in self.processes():
            try:
                script = process.cmdline()[1:3]  # of `python FILE …` or `python -m MODULE`
            except psutil.NoSuchProcess:
                continue
            # Snakemake runs a copy of X.py as tmp….X.py
            if program in script or any(
                word.endswith((f"/{program}.py", f".{program}.py")) for word in script
            ):
                return process
        return None

    def is_up(self) -> bool:
        """Whether there is a handle of a server, written before its first health check."""
        return any(self.workflow.folder.glob("results/test/*/*/trial~1/handle.json"))


def processes_of(workflow: Workflow) -> list[psutil.Process]:
    mark = workflow.env["CROSSOVER_LOCK_DIR"]
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("CROSSOVER_LOCK_DIR") == mark or Path(
                process.cwd()
            ).is_relative_to(workflow.folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


# ------------------------------------------------------------------ moments


def starting(run: Run) -> bool:
    """The supervisor is there, its server's handle is not."""
    return bool(run.running("crossover.server.supervisor")) and not run.is_up()


def waiting(run: Run) -> bool:
    return bool(run.is_up() and run.running("check_health") and run.running("simulated_server"))


def measuring(run: Run) -> bool:
    """A point is finished, and the next one's load is on."""
    return bool(run.workflow.points()) and loading(run)


def loading(run: Run) -> bool:
    """The measuring job has connected to the server."""
    job = run.running("measure_point")
    return bool(job and job.net_connections())


def stopping(run: Run) -> bool:
    """The server has been told to stop and takes its time."""
    logs = run.workflow.folder.glob("logs/test/*/*/trial~1/server-*.log")
    return any("simulated: stopping" in log.read_text() for log in logs)


def aggregating(run: Run) -> bool:
    return bool(run.running("summarise_points"))


MOMENTS = (starting, waiting, measuring, stopping, aggregating)
JOB_AT = {
    starting: "start_server",
    waiting: "check_health",
    measuring: "measure_point",
    stopping: "stop_server",
    aggregating: "summarise_points",
}


# ------------------------------------------------------------------ kills


def interrupt(run: Run, moment: Callable) -> None:
    """Ctrl-C: the terminal sends INT to all processes in its foreground."""
    os.killpg(run.process.pid, signal.SIGINT)


def terminate(run: Run, moment: Callable) -> None:
    run.process.terminate()


def kill_snakemake(run: Run, moment: Callable) -> None:
    run.process.kill()


def kill_supervisor(run: Run, moment: Callable) -> None:
    run.running("crossover.server.supervisor").kill()


def kill_server(run: Run, moment: Callable) -> None:
    run.running("simulated_server").kill()


def kill_api_server(run: Run, moment: Callable) -> None:
    run.running("api-server").kill()


def kill_engine_core(run: Run, moment: Callable) -> None:
    run.running("engine-core").kill()


def kill_worker(run: Run, moment: Callable) -> None:
    run.running("worker").kill()


def kill_job(run: Run, moment: Callable) -> None:
    run.running(JOB_AT[moment]).kill()


def fill_disk(run: Run, moment: Callable) -> None:
    """Take all the space there is for results, to the last byte."""
    with open(run.workflow.folder / "results/filler", "wb", buffering=0) as filler:
        for size in (65536, 1):
            with suppress(OSError):
                while filler.write(b"x" * size):
                    pass


def cut_power(run: Run, moment: Callable) -> None:
    """KILL everything: stopped first, so that nothing sees another one's end."""
    everything = run.processes()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in everything:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue


KILLS = (
    interrupt,
    terminate,
    kill_snakemake,
    kill_supervisor,
    kill_server,
    kill_job,
    fill_disk,
    cut_power,
)

OVER_TWO_GPUS = (
    kill_api_server,
    kill_engine_core,
    kill_worker,
    kill_supervisor,
    kill_snakemake,
)
"""Kills after which workers of a server over several GPUs may be left."""

AT_ANY_TIME = (interrupt, terminate, kill_snakemake, cut_power)

IMPOSSIBLE = {
    # a server is there only an instant before its handle, from which on it is being waited for
    (kill_server, starting),
    # the last server is gone before the tables are made
    (kill_supervisor, aggregating),
    (kill_server, aggregating),
}


@contextmanager
def small_disk(workflow: Workflow) -> Iterator[None]:
    """Put the results on a file system of 4 MiB.

    It is mounted in a mount namespace that only a sleeping process of ours holds, which needs no
    privilege, and is seen from outside through /proc.
    """
    results = workflow.folder / "results"
    mounted = workflow.folder / "small-disk"
    mounted.mkdir()
    holder = subprocess.Popen(
        [
            *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
            f'mount -t tmpfs -o size=4m tmpfs "{mounted}" && echo mounted && exec sleep 600',
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "mounted\n", "no mount namespace to be had here"
        inside = Path(f"/proc/{holder.pid}/root{mounted}/results")
        if results.exists():
            shutil.move(results, inside)
        inside.mkdir(exist_ok=True)
        results.symlink_to(inside)
        yield
    finally:
        holder.kill()
        holder.communicate()


# ------------------------------------------------------------------ what must be true


def finished_points(workflow: Workflow) -> dict[Path, str]:
    """Digest of every file of every finished point; asserts that each can be read."""
    digests = {}
    for folder in workflow.points():
        json.loads((folder / "point.json").read_text())
        for table in ("requests.parquet", "chunks.parquet"):
            pq.read_table(folder / table)
        content = b"".join(file.read_bytes() for file in sorted(folder.glob("[a-z]*")))
        digests[folder.relative_to(workflow.folder)] = hashlib.sha256(content).hexdigest()
    return digests


def assert_nothing_left(workflow: Workflow) -> None:
    """No process, no port, no lock, no memory of a GPU, `AFTERMATH_S` after the kill at the latest."""
    deadline = time.monotonic() + AFTERMATH_S
    while left := left_of(workflow):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


def left_of(workflow: Workflow) -> list[Any]:
    """Processes, answered ports, held lock files and memory of a workflow's runs."""
    locks = [*workflow.folder.glob("locks/*.lock"), workflow.folder / ".snakemake/live.lock"]
    return [
        *processes_of(workflow),
        *filter(is_answered, ports_of(workflow)),
        *filter(is_held, locks),
        *memory_held(workflow),
    ]


def is_held(lock: Path) -> bool:
    """Whether somebody has a lock file locked; one that was never made is free."""
    try:
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def ports_of(workflow: Workflow) -> list[int]:
    """Ports of all servers that were ever started, by the sessions' records."""
    ports = []
    for record in workflow.folder.glob("results/test/*/*/trial~*/sessions/*.jsonl"):
        for line in record.read_text().splitlines():
            try:
                command = json.loads(line).get("command")
            except ValueError:  # cut off
                continue
            if command:
                ports.append(int(command[command.index("--port") + 1]))
    return ports


def is_answered(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def points_kept(workflow: Workflow, before: dict[Path, str], remeasured: int) -> dict[Path, str]:
    """The finished points now; asserts that none is missing and only a few are other ones.

    A point whose job ended in the moment of a kill, unseen by Snakemake, is measured again.
    """
    now = finished_points(workflow)
    assert now.keys() >= before.keys()
    changed = [point for point, digest in before.items() if now[point] != digest]
    assert len(changed) <= remeasured, changed
    return now


def assert_completes(workflow: Workflow, before: dict[Path, str], points: int) -> None:
    """The same command again makes the report and measures only what was not finished."""
    workflow.run(*COMMAND)
    assert_nothing_left(workflow)
    assert (workflow.folder / "reports/crossover.html").stat().st_size > 100_000
    assert len(points_kept(workflow, before, remeasured=1)) == points
    assert not workflow.plan(*COMMAND)
