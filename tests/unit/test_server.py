"""Single pieces of a server's life; its whole is in tests/integration/."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import psutil
import pytest

from crossover import engines
from crossover.campaign import Model, Variant
from crossover.errors import StartupError
from crossover.run_lock import claim
from crossover.server import (
    device_lock,
    ending,
    hidden_log,
    namespace,
    process_table,
    processes,
    readiness,
    session,
)

GOOD = [
    {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
    {"choices": [{"delta": {"content": "one two"}, "finish_reason": "length"}]},
    {"choices": [], "usage": {"completion_tokens": 8}},
]


@contextmanager
def serving(events=GOOD, status=200, health=200, loading=0):
    """A server that answers every chat request with these events, the first `loading` with 503."""
    loads = iter(range(loading))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(health)
            self.end_headers()

        def do_POST(self):
            self.send_response(status if next(loads, None) is None else 503)
            self.end_headers()
            for event in events:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def variant(timeout_s: float = 5.0) -> Variant:
    return Variant("v", "simulated", Model("m"), startup_timeout_s=timeout_s)


def handle(tmp_path, base_url: str, **changes) -> session.Handle:
    (tmp_path / "server.log").write_text("loading\nthe last line\n")
    values = {
        "session_id": "s",
        "variant": "v",
        "trial": 1,
        "base_url": base_url,
        "port": None,
        "pid": None,
        "supervisor": processes.identity(),
        "owner": processes.identity(),
        "started_at": time.time(),
        "started_s": time.monotonic(),
        "record": str(tmp_path / "s.jsonl"),
        "samples": str(tmp_path / "samples.jsonl"),
        "server_log": str(tmp_path / "server.log"),
    }
    return session.Handle(**{**values, **changes})


def wait(tmp_path, base_url, timeout_s=5.0, **changes) -> float:
    return readiness.wait_until_ready(
        handle(tmp_path, base_url, **changes), variant(timeout_s), engines.get("simulated")
    )


def test_ready_is_an_answer_with_content_finish_and_usage(tmp_path):
    with serving() as base_url:
        assert wait(tmp_path, base_url) > 0


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (GOOD[:2], "no usage"),
        ([*GOOD[:2], {"choices": [], "usage": {"completion_tokens": 1}}], "1 tokens"),
        ([GOOD[0], GOOD[2]], "no content"),
        (
            [{"choices": [{"delta": {"content": "x"}, "finish_reason": None}]}, GOOD[2]],
            "no finish reason",
        ),
    ],
)
def test_a_healthy_server_that_does_not_answer_is_an_error(tmp_path, events, said):
    with serving(events) as base_url, pytest.raises(StartupError, match=said) as caught:
        wait(tmp_path, base_url)
    assert "the last line" in str(caught.value)


@pytest.mark.parametrize("status", [404, 500])
def test_a_refused_request_is_an_error_at_once(tmp_path, status):
    with serving(status=status) as base_url, pytest.raises(StartupError, match=str(status)):
        wait(tmp_path, base_url, timeout_s=60)


def test_a_server_that_is_not_up_yet_is_waited_for(tmp_path):
    with serving(loading=2) as base_url:
        assert wait(tmp_path, base_url) > 0


def test_a_server_that_never_gets_healthy_is_told_with_what_was_seen(tmp_path):
    with (
        serving(health=503) as base_url,
        pytest.raises(StartupError, match=r"not ready after 0\.3 s.*503") as caught,
    ):
        wait(tmp_path, base_url, timeout_s=0.3)
    assert "startup_timeout_s" in str(caught.value)


def test_a_port_that_another_process_answers_is_refused(tmp_path):
    with serving() as base_url:
        port = int(base_url.rpartition(":")[2])
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        try:
            with pytest.raises(
                StartupError, match=rf"port {port} is answered by pid {os.getpid()}"
            ):
                wait(tmp_path, base_url, port=port, supervisor=processes.identity(sleeper.pid))
        finally:
            sleeper.kill()
            sleeper.wait()


def test_a_supervisor_that_is_gone_is_told_at_once(tmp_path):
    with pytest.raises(StartupError, match="ended during start-up"):
        wait(tmp_path, "http://127.0.0.1:9", supervisor=f"{processes.identity()}0", timeout_s=60)


def test_a_reused_pid_is_not_the_process_that_was_meant():
    mine = processes.identity()
    assert processes.is_alive(mine)
    host, pid, ticks = mine.rsplit(":", 2)
    assert not processes.is_alive(f"{host}:{pid}:{int(ticks) + 1}")
    assert processes.is_alive(f"elsewhere:{pid}:{ticks}"), "of another host it is assumed"


def test_a_process_is_alive_until_its_last_thread_has_ended():
    leaves = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    process = subprocess.Popen([sys.executable, "-c", leaves])
    who = processes.identity(process.pid)
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert processes.is_alive(who), "it still has its files and locks"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(who), "nobody has asked for its status yet"
    process.wait()


def test_stop_kills_what_does_not_heed_term():
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); time.sleep(60)"
    stubborn = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    stubborn.stdout.readline()
    who = processes.identity(stubborn.pid)
    assert processes.stop(who, grace_s=0.2)
    assert stubborn.wait() == -9
    stubborn.stdout.close()
    assert not processes.stop(who, grace_s=0.2)


def test_processes_are_found_by_the_mark_of_their_session():
    env = {**os.environ, processes.SESSION_MARK: "marked"}
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=env)
    try:
        assert processes.of_session("marked") == [child.pid]
        assert processes.of_session("mark") == []
        assert process_table.kill_all([child.pid]) == []
    finally:
        child.kill()
        child.wait()


def test_a_device_is_held_by_one_and_free_when_its_holder_is_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSOVER_LOCK_DIR", str(tmp_path / "locks"))
    me = {"owner": processes.identity(), "variant": "v"}
    assert device_lock.holder("gpu0") is None
    fd = device_lock.acquire("gpu0", me)
    assert device_lock.acquire("gpu0", me) is None
    assert device_lock.holder("gpu0") == me
    assert device_lock.acquire("gpu1", me) is not None
    os.close(fd)
    assert device_lock.holder("gpu0") is None


def test_a_device_is_reclaimed_from_this_run_and_from_dead_ones_only():
    me = processes.identity()
    assert device_lock.is_reclaimable({"owner": me}, me)
    assert device_lock.is_reclaimable({"owner": f"{me}0"}, me)
    assert not device_lock.is_reclaimable({"owner": me}, "another:1:1")


def test_a_namespace_passes_the_exit_status_on_and_ends_what_was_left_in_it(tmp_path):
    if not (inside := namespace.prefix()):
        pytest.skip("no PID namespace can be made here")
    leaves = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True); sys.exit(7)"
    env = {**os.environ, processes.SESSION_MARK: "in-namespace"}
    done = subprocess.run([*inside, sys.executable, "-c", leaves], env=env, timeout=30)
    assert done.returncode == 7
    assert processes.of_session("in-namespace") == []


def test_a_hidden_value_is_hidden_wherever_the_server_breaks_its_output(tmp_path):
    read_end, write_end = os.pipe()
    log = tmp_path / "log"
    thread = hidden_log.copy(
        os.fdopen(read_end, "rb"), log.open("wb"), lambda text: text.replace("secret", "${S}")
    )
    for piece in (b"a sec", b"ret b\n", b"50 %\r", b"\xff sec", b"ret"):
        os.write(write_end, piece)
        time.sleep(0.05)
    assert log.read_bytes() == b"a ${S} b\n50 %\r", "whole lines are there at once"
    os.close(write_end)
    thread.join(10)
    assert log.read_bytes() == b"a ${S} b\n50 %\r\xff ${S}"


@pytest.mark.parametrize(
    ("before", "after", "code", "said"),
    [
        ("oom_kill 3", "oom_kill 4", 1, "killed a process for lack of memory"),
        ("oom_kill 3", "oom_kill 3", -9, "not for lack of memory"),
        ("oom_kill 3", "oom_kill 3", 1, None),
        ("", "", -9, "cannot be read here"),
    ],
)
def test_what_the_kernel_counts_says_whether_memory_was_short(
    tmp_path, monkeypatch, before, after, code, said
):
    counts = tmp_path / "vmstat"
    monkeypatch.setattr(ending, "_COUNTS", ((str(counts), r"^oom_kill (\d+)$"),))
    monkeypatch.setattr(ending, "_KERNEL_LOG", tmp_path / "unreadable")
    counts.write_text(f"pgfault 1\n{before}\n")
    watch = ending.OutOfMemory()
    counts.write_text(f"pgfault 2\n{after}\n")
    found = watch.since_start(code)
    assert (said in found) if said else (found is None)


def test_a_record_is_appended_to_and_survives_a_torn_line(tmp_path):
    record = tmp_path / "folder" / "s.jsonl"
    session.append(record, "started", a=1, b=1)
    with record.open("a") as torn:
        torn.write('{"event": "cut o')
    session.append(record, "stopped", b=2)
    assert session.read(record) == {"a": 1, "b": 2}
    assert len(record.read_text().splitlines()) == 3


def test_an_event_that_the_disk_has_no_room_for_is_an_error():
    with pytest.raises(OSError, match="No space left"):
        session.append("/dev/full", "started", a=1)


def test_the_tail_of_a_log_has_no_control_characters(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + b"\x1b[31mred\x1b[0m\x07 \xff\n" * 3)
    assert session.log_tail(log, 2) == "[31mred[0m \ufffd\n[31mred[0m \ufffd"
    assert session.log_tail(tmp_path / "none") == "(no log)"


def test_a_lock_of_a_killed_run_is_dropped_and_of_a_live_one_is_not(tmp_path):
    folder = tmp_path / ".snakemake"
    left = folder / "locks"
    left.mkdir(parents=True)
    code = f"from crossover.run_lock import claim; claim(cluster=False, folder={str(folder)!r}); "
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
    (left / "0.input.lock").touch()
    live = subprocess.Popen(
        [sys.executable, "-c", code + "print(flush=True); import time; time.sleep(60)"],
        stdout=subprocess.PIPE,
        env=env,
    )
    live.stdout.readline()
    assert not list(left.iterdir()), "left by a run that is gone"
    (left / "0.input.lock").touch()
    assert not claim(cluster=False, folder=folder)
    assert list(left.iterdir()), "of a run that is live"
    live.kill()
    live.wait()
    live.stdout.close()
