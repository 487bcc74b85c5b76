"""One session without Snakemake: real supervisors and servers, stand-ins for what is not here."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from integration.containers import STAND_INS
from integration.gpus import server_over
from stand_ins import device_memory

from crossover.campaign import Variant
from crossover.errors import DeviceBusyError, ServerError, StartupError
from crossover.files import write_json
from crossover.server import debts, device_lock, ending, processes, readiness, session, start
from crossover.server.session import Handle
from crossover.server.stop import stop, told

SERVER = ["{python}", "{engines}/simulated_server.py", "--port", "{port}", "--model", "m"]
MIB = 2**20

# a supervisor outlives the call that started it
pytestmark = pytest.mark.filterwarnings("ignore:.*Popen:pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROSSOVER_LOCK_DIR", str(tmp_path / "locks"))


@pytest.fixture
def life(tmp_path):
    """Start sessions; whatever is left of them is ended with the test."""
    begun: list[Handle] = []

    class Life:
        handle_file = str(tmp_path / "results/handle.json")

        def __init__(self) -> None:
            self.said: list[str] = []

        def start(self, owner: str | None = None, **settings: Any) -> Handle:
            variant = as_variant(**settings)
            facts = {"campaign": "test", "variant": "v", "trial": 1, "rank": 0}
            handle = start.start(
                variant,
                facts={**facts, "server_digest": "0" * 8},
                owner=owner or processes.identity(),
                handle=self.handle_file,
                server_log="logs/server-{session_id}.log",
                say=self.said.append,
            )
            begun.append(handle)
            return handle

        def ready(self, **settings: Any) -> Handle:
            handle = self.start(**settings)
            readiness.check(self.handle_file, "results/health.json", as_variant(**settings))
            return handle

        def stop(self) -> dict[str, Any]:
            return stop(self.handle_file, "results/stopped.json")

    yield Life()
    for handle in begun:
        processes.stop(handle.supervisor, grace_s=20.0)


def as_variant(**settings: Any) -> Variant:
    given = {"engine": "simulated", "startup_timeout_s": 20.0, "stop_grace_s": 3.0, **settings}
    return Variant.from_dict({"name": "v", "model": {"name": "m"}, **given})


def wait_for(condition, what: str, timeout_s: float = 20.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never seen: {what}"
        time.sleep(0.02)
    return found


# ------------------------------------------------------------------ how a server ended


def test_a_killed_server_is_told_with_its_signal_and_its_last_lines(life):
    handle = life.ready(args={"daemonise-grandchild": True})
    psutil.Process(handle.pid).children(recursive=True)[-1].kill()
    os.kill(handle.pid, signal.SIGKILL)
    how = wait_for(lambda: ending.ended(handle), "the end of the server", 5.0)
    assert "signal SIGKILL" in how
    assert "not for lack of memory" in how
    assert Path(handle.server_log).read_text().strip().splitlines()[-1] in how
    with pytest.raises(ServerError, match="it ended by itself: signal SIGKILL"):
        life.stop()
    assert not processes.of_session(handle.session_id)


def test_a_crash_at_start_is_told_with_its_exit_code(life):
    with pytest.raises(StartupError, match=r"ended during start-up.*exit code 3"):
        life.ready(args={"fail-start": 3})


@pytest.fixture
def little_memory():
    """A control group of 64 MiB; its processes are killed for lack of memory."""
    own = next(
        (
            line.split(":", 2)[2]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.split(":")[1] == "memory"
        ),
        None,
    )
    if own is None:
        pytest.skip("no memory control group (version 1) here")
    group = Path(f"/sys/fs/cgroup/memory{own}/crossover-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("control groups cannot be made here")
    (group / "memory.limit_in_bytes").write_text(str(64 * MIB))
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text(), "the end of the group")
    group.rmdir()


def test_a_server_that_the_kernel_ends_for_lack_of_memory_is_told(life, little_memory, tmp_path):
    hog = (
        f"import os; open('{little_memory}/cgroup.procs', 'w').write('0'); "
        "kept = [os.urandom(2**20) for _ in range(512)]"
    )
    with pytest.raises(StartupError, match=r"signal SIGKILL; the kernel.*memory"):
        life.ready(engine="openai", command=("{python}", "-c", hog, "{port}"))


# ------------------------------------------------------------------ what is in the way of a start


def test_a_wrong_model_name_is_told_with_the_names_that_the_server_has(life):
    with pytest.raises(StartupError, match=r"model 'm' failed: .*404.*; it serves 'other'"):
        life.ready(engine="openai", command=(*SERVER[:-1], "other"))


def test_who_holds_the_port_is_told(life, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(start, "free_port", lambda: port)
        with pytest.raises(
            StartupError, match=rf"port {port} is held by pid {os.getpid()} \(.*since"
        ):
            life.ready()


def test_a_server_gets_no_port_that_an_outgoing_connection_could_take(monkeypatch):
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if lowest_given <= 10_000:
        pytest.skip("this host gives all ports to outgoing connections")
    assert all(10_000 <= start.free_port() < lowest_given for _ in range(20))

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(random, "sample", lambda ports, number: [port])
        assert start.free_port() != port


def test_a_log_folder_that_cannot_be_written_is_told(life, tmp_path):
    (tmp_path / "logs").write_text("a file where the folder should be")
    with pytest.raises(ServerError, match=r"cannot write .*logs"):
        life.start()


def test_who_holds_the_device_since_when_and_where_is_told(life, tmp_path):
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        handle = life.start(owner=processes.identity(sleeper.pid))
        with pytest.raises(DeviceBusyError) as caught:
            life.start()
        said = str(caught.value)
        assert "cpu0 is in use since 2" in said
        assert f"campaign test (variant v) in {tmp_path}" in said
        assert f"pid {processes.pid_of(handle.supervisor)} (" in said
    finally:
        sleeper.kill()
        sleeper.wait()


def test_of_several_devices_the_one_that_is_busy_is_named_and_the_others_stay_free(life):
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        life.start(owner=processes.identity(sleeper.pid), devices=("gpu1",))
        with pytest.raises(DeviceBusyError, match=r"device gpu1 is in use since .* campaign test"):
            life.start(devices=("gpu0", "gpu1"))
        assert device_lock.holder("gpu0") is None
        assert device_lock.holder("gpu1")["owner"] == processes.identity(sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.wait()


# ------------------------------------------------------------------ environment and secrets


def test_a_secret_from_the_shell_is_in_no_file_and_no_process_of_ours(life, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-5a1c7e")
    prints = "import os, runpy, sys; print('key', os.environ['TOKEN'], *sys.argv[1:], flush=True); "
    prints += "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = ("{python}", "-c", prints, *SERVER[1:], "--seed", "${SEED}")
    monkeypatch.setenv("SEED", "7")
    handle = life.ready(
        engine="openai", command=command, env={"TOKEN": "${MY_KEY}"}, api_key="${MY_KEY}"
    )
    supervisor = psutil.Process(processes.pid_of(handle.supervisor))
    assert "sk-5a1c7e" not in " ".join(supervisor.cmdline())
    life.stop()
    assert "key ${MY_KEY}" in Path(handle.server_log).read_text()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert Path(handle.record).resolve() in files
    assert not [path for path in files if b"sk-5a1c7e" in path.read_bytes()]


def test_what_a_server_inherits_is_recorded_without_secrets_and_unchanged(life, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("GGML_N", "1")
    monkeypatch.setenv("OMP_SET", "4")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    handle = life.ready(env={"OMP_SET": "5"})
    (server,) = [
        process
        for process in psutil.Process(handle.pid).children(recursive=True)
        if "simulated_server.py" in " ".join(process.cmdline()[:2])
    ]
    assert server.environ()["PYTHONPATH"] == "/nowhere"
    known = session.read(handle.record)["inherited_env"]
    assert known["OMP_NUM_THREADS"] == "3"
    assert known["HF_TOKEN"] == "(hidden)"
    assert "OMP_SET" not in known, "set for the server, not inherited"
    assert "GGML_N" not in known, "another engine's"
    life.stop()


# ------------------------------------------------------------------ device memory (stand-in NVML)


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Sets what the stand-in for NVML says: bytes used and pids of each GPU."""
    monkeypatch.setenv("STAND_IN_NVML", str(tmp_path / "nvml.json"))
    monkeypatch.setenv("PYTHONPATH", str(STAND_INS))
    monkeypatch.syspath_prepend(str(STAND_INS))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    def put(*used_mib: int, pids: tuple[int, ...] = ()) -> None:
        gpus = [{"used": mib * MIB, "pids": pids} for mib in used_mib]
        write_json(gpus, tmp_path / "nvml.json")

    put(10, 20)
    yield put
    sys.modules.pop("pynvml", None)


ON_GPUS = {"devices": ("gpu1", "gpu0"), "stop_grace_s": 1.0}


def test_memory_before_and_after_is_recorded_for_every_gpu(life, gpus):
    handle = life.ready(**ON_GPUS)
    gpus(10 + 5, 20)
    stopped = life.stop()
    assert "device memory is back" in told(stopped)
    facts = session.read(handle.record)
    assert facts["gpu_memory_before_bytes"] == [10 * MIB, 20 * MIB]
    assert facts["gpu_memory_after_bytes"] == [15 * MIB, 20 * MIB]
    assert facts["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert not life.said


def test_memory_that_does_not_come_back_keeps_the_next_server_from_starting(
    life, gpus, monkeypatch
):
    monkeypatch.setattr(debts, "_MEMORY_WAIT_S", 0.2)
    life.ready(**ON_GPUS)
    gpus(10, 20 + 700)
    unseen = r"gpu1: 700 MiB of memory are held, and no process of this machine .* on the host"
    with pytest.raises(ServerError, match=unseen):
        life.stop()
    gpus(10, 20 + 700, pids=(os.getpid(),))
    with pytest.raises(ServerError, match=rf"gpu1: 700 MiB .* held by pid {os.getpid()} \("):
        life.start(**ON_GPUS)
    gpus(10, 20)
    life.ready(**ON_GPUS)
    life.stop()


def test_memory_that_others_hold_before_the_first_start_is_told(life, gpus):
    gpus(10, 41_000)
    with pytest.raises(StartupError, match="before the start 41000 MiB of gpu1 were in use"):
        life.ready(**ON_GPUS, args={"fail-start": 1})
    (said,) = life.said
    assert "gpu1: 41000 MiB" in said
    assert "another container or virtual machine" in said


@pytest.mark.parametrize(
    ("devices", "why"), [(("gpu0",), "NVML: "), (("cpu0",), "no GPU among its devices")]
)
def test_memory_that_cannot_be_read_is_not_checked_and_that_is_said(
    life, gpus, monkeypatch, devices, why
):
    monkeypatch.delenv("STAND_IN_NVML")
    handle = life.ready(devices=devices)
    assert f"device memory not checked ({why}" in told(life.stop())
    assert session.read(handle.record)["gpu_memory_before_bytes"] is None


def test_workers_that_outlive_their_supervisor_are_ended_before_their_memory_is_waited_for(
    life, gpus, tmp_path, monkeypatch
):
    unshare = tmp_path / "bin/unshare"  # no PID namespace, which would end them with it
    unshare.parent.mkdir()
    unshare.write_text("#!/bin/sh\nexit 1\n")
    unshare.chmod(0o755)
    monkeypatch.setenv("PATH", f"{unshare.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(debts, "_MEMORY_WAIT_S", 5.0)
    handle = life.ready(**server_over(["gpu0", "gpu1"]))
    os.kill(processes.pid_of(handle.supervisor), signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(handle.pid) or ending.ended(handle), "the end")
    assert device_memory.held(0)
    assert device_memory.held(1)
    with pytest.raises(ServerError, match="ended without a record of the stop"):
        life.stop()
    assert not processes.of_session(handle.session_id)
    assert not device_memory.held(0)
    assert not device_memory.held(1)
    life.ready(**server_over(["gpu0", "gpu1"]))
    life.stop()


# ------------------------------------------------------------------ containers (stand-in runtime)


def test_a_container_is_ended_by_its_stop_command(life, runtime):
    handle = life.ready(**runtime.settings)
    (inside,) = runtime.containers
    assert processes.SESSION_MARK not in inside.environ()
    life.stop()
    assert not runtime.containers
    assert not processes.is_port_open("127.0.0.1", handle.port)
    assert session.read(handle.record)["stop_problem"] is None


def test_a_container_outlives_its_command_and_is_ended_all_the_same(life, runtime):
    handle = life.ready(**runtime.settings)
    cli = psutil.Process(handle.pid).children(recursive=True)[-1]
    assert "container_cli.py" in " ".join(cli.cmdline())
    cli.kill()
    wait_for(lambda: ending.ended(handle), "the end of the command")
    wait_for(lambda: not runtime.containers, "the end of the container", 10.0)


def test_a_container_that_comes_up_after_its_stop_is_ended(life, runtime):
    slow = ("sh", "-c", 'sleep 1; exec "$@"', "-", *runtime.settings["command"])
    life.start(**runtime.settings | {"command": slow})
    life.stop()
    assert not runtime.containers


def test_a_stop_command_that_fails_keeps_the_next_server_from_starting(life, runtime):
    broken = {
        **runtime.settings,
        "stop": ("{python}", "-c", "import sys; sys.exit('no such daemon')"),
    }
    life.ready(**broken)
    with pytest.raises(
        ServerError, match=r"its stop command.* ended with status 1: no such daemon"
    ):
        life.stop()
    with pytest.raises(ServerError, match=r"no such daemon.*remove .*cpu0\.lock"):
        life.start(**broken)


def test_a_stop_without_a_supervisor_ends_the_container(life, runtime):
    handle = life.ready(**runtime.settings)
    os.kill(processes.pid_of(handle.supervisor), signal.SIGKILL)
    with pytest.raises(ServerError, match="ended without a record of the stop"):
        life.stop()
    assert not runtime.containers


def test_after_a_kill_of_everything_the_next_start_ends_the_container(life, runtime):
    handle = life.ready(**runtime.settings)
    (old,) = runtime.containers
    for pid in [processes.pid_of(handle.supervisor), handle.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not processes.of_session(handle.session_id), "the end of the processes")
    assert old.is_running(), "a container knows nothing of it"
    life.ready()
    assert not old.is_running()
    assert not runtime.containers
    life.stop()
    assert device_lock.holder("cpu0") is None


# ------------------------------------------------------------------ MPI (stand-in launcher)


def test_only_the_launcher_is_told_to_stop_and_nothing_outside_the_session(life, tmp_path):
    neighbour = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    )
    log = tmp_path / "mpi.log"
    launcher = ("{python}", str(STAND_INS / "mpi_launcher.py"), str(log), "3", *SERVER)
    try:
        handle = life.ready(engine="openai", command=launcher)
        life.stop()
        assert neighbour.poll() is None
    finally:
        neighbour.kill()
        neighbour.wait()
    *ranks, last = map(json.loads, log.read_text().splitlines())
    assert len(ranks) == 2
    for rank in ranks:
        assert rank["from"] == rank["launcher"] == last["launcher"]
    assert last["ranks_ended"] == 3
    facts = session.read(handle.record)
    assert facts["exit_code"] == 0
    assert not facts["killed"]


def test_a_debt_is_not_lost_to_a_start_that_did_not_see_it(life, runtime):
    handle = life.ready(**runtime.settings)
    for pid in [processes.pid_of(handle.supervisor), handle.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not processes.of_session(handle.session_id), "the end of the processes")
    assert device_lock.acquire("cpu0", {}) is None
    life.ready()
    assert not runtime.containers
    life.stop()


def test_nothing_is_started_for_a_run_that_has_ended(life, runtime):
    with subprocess.Popen(["true"]) as gone:
        owner = processes.identity(gone.pid)
    with pytest.raises(ServerError, match="the run that asked for a server has ended"):
        life.start(owner=owner, **runtime.settings)
    assert not runtime.containers
    assert device_lock.holder("cpu0") is None
