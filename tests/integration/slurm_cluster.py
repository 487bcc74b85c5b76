"""A real Slurm of several nodes on this machine: no systemd, no cgroups, no accounting database.

A node is a slurmd in namespaces of its own, which give it a host name, processes that end with it,
and its own folder of device locks: what separate machines have. Its GPU is one to Slurm alone.
Ports and the file system are shared, the latter as on a cluster.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "munged", "unshare")

_CONFIG = """
ClusterName=crossover
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={root}/munge.socket
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/%n/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/%n/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/%n/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MinJobAge=3600
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=5
KillWait=5
MessageTimeout=10
PartitionName=main Nodes={nodes} Default=YES MaxTime=INFINITE State=UP
"""

_HARDWARE = "CPUs=4 RealMemory=4000 Gres=gpu:1"


def missing() -> str | None:
    """Why no cluster can be started here, in words; None: one can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"no {', '.join(absent)} (Debian: apt-get install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "needs root, to give every node a host name and processes of its own"
    return None


_PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


@dataclass
class Cluster:
    """A Slurm that runs. `env` is what its users have in their environment."""

    root: Path
    nodes: tuple[str, ...]
    env: dict[str, str]
    _daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _slurmds: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def lock_folder(self) -> Path:
        """Where device locks are: every node sees a folder of its own there."""
        return self.root / "devices"

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout.strip()

    def jobs(self) -> dict[str, str]:
        """Node by job id of the jobs that run."""
        lines = self.ask("squeue", "--noheader", "--states", "RUNNING", "--format", "%i %N")
        return dict(line.split() for line in lines.splitlines())

    def processes(self, job: str) -> list[int]:
        """Pids of all that runs on a node for a job, daemonised processes too."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get("SLURM_JOB_ID") == job:
                    found.append(process.pid)
        return found

    def start_node(self, name: str) -> None:
        """Boot a node."""
        script = (
            f"hostname {name} && mount --bind {self.root}/{name}/devices {self.lock_folder} && "
            f"exec slurmd -D -N {name} -f {self.root}/slurm.conf"
        )
        namespaces = ("--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        self._slurmds[name] = self._start("unshare", *namespaces, "sh", "-c", script)

    def crash_node(self, name: str) -> None:
        """End a node with all that runs on it, as a power cut."""
        self._slurmds[name].kill()
        self._slurmds.pop(name).wait()

    def wait_for_nodes(self, timeout_s: float = 30.0) -> None:
        """Block until every node takes jobs."""
        _wait(
            lambda: self.ask("sinfo", "-h", "-N", "-t", "idle,mixed,allocated", "-o", "%N").split(),
            lambda up: set(up) == set(self.nodes),
            timeout_s,
            f"not all of {self.nodes} take jobs; see {self.root}/*/slurmd.log",
        )

    def start(self) -> None:
        """Start everything."""
        ports = _free_ports(1 + len(self.nodes))
        config = _CONFIG.format(
            root=self.root,
            host=socket.gethostname(),
            user=getpass.getuser(),
            ports=ports,
            nodes=",".join(self.nodes),
        )
        for name, port in zip(self.nodes, ports[1:], strict=True):
            config += f"NodeName={name} NodeAddr=127.0.0.1 Port={port} {_HARDWARE}\n"
            for folder in ("spool", "devices"):
                (self.root / name / folder).mkdir(parents=True)
        for folder in ("state", "devices", "bin"):
            (self.root / folder).mkdir()
        (self.root / "slurm.conf").write_text(config)
        (self.root / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        key = self.root / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(1024))
        # job steps of the executor drop every SLURM_* variable, and would look in /etc
        srun = self.root / "bin/srun"
        real = shutil.which("srun", path=_PATH)
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={self.root}/slurm.conf exec {real} "$@"\n')
        srun.chmod(0o755)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
        options = [f"--{name}={self.root}/munge.{end}" for name, end in files.items()]
        self._start("munged", "--foreground", "--force", *options, f"--seed-file={self.root}/seed")
        _wait((self.root / "munge.socket").exists, bool, 10.0, "munged made no socket")
        self._start("slurmctld", "-D", "-c", "-f", str(self.root / "slurm.conf"))
        for name in self.nodes:
            self.start_node(name)
        self.wait_for_nodes()

    def stop(self) -> None:
        """End all that runs on the nodes, then the daemons."""
        for name in list(self._slurmds):
            self.crash_node(name)
        for daemon in reversed(self._daemons):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
                try:
                    daemon.wait(10.0)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with open(self.root / f"{command[0]}.out", "ab") as log:
            daemon = subprocess.Popen(
                command,
                env={k: v for k, v in self.env.items() if k != "CROSSOVER_LOCK_DIR"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._daemons.append(daemon)
        return daemon


@contextmanager
def slurm(root: Path, nodes: tuple[str, ...] = ("node1", "node2")) -> Iterator[Cluster]:
    """A cluster that lives as long as the block; `root` is a folder that does not exist yet."""
    root.mkdir()
    env = {
        **os.environ,
        "SLURM_CONF": f"{root}/slurm.conf",
        "PATH": f"{root}/bin{os.pathsep}{_PATH}",
        "CROSSOVER_LOCK_DIR": f"{root}/devices",  # its jobs are told by it, see kills.processes_of
    }
    cluster = Cluster(root, nodes, env)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _wait(
    look: Callable[[], Any], enough: Callable[[Any], bool], timeout_s: float, problem: str
) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if enough(look()):
                return
        except subprocess.CalledProcessError:  # slurmctld does not answer yet
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(problem)
        time.sleep(0.1)


def _free_ports(number: int) -> list[int]:
    probes = [socket.socket() for _ in range(number)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
