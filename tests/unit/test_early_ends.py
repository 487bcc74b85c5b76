from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crossover.early_ends import FailedSessions

HINT = (
    "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
)


class Group:
    """What is used of Snakemake's group job."""

    def __init__(self, variant: str, trial: int, *logs: Path) -> None:
        wildcards = SimpleNamespace(variant=variant, trial=str(trial))
        self.jobs = [SimpleNamespace(wildcards=wildcards, log=[log]) for log in logs or ["gone"]]
        self.logged: list[str] = []

    def log_error(self, msg: str | None = None, **details: Any) -> None:
        self.logged.append(msg or "")


@pytest.fixture
def failed() -> FailedSessions:
    return FailedSessions()


def test_a_failed_session_is_named_with_what_its_jobs_said_and_its_log(
    failed: FailedSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    health, point = tmp_path / "check_health.log", tmp_path / "1.log"
    health.write_text("a remark\ncrossover: eagle: the server ended; last lines of s.log:\nboom\n")
    point.write_text("")
    slurm = tmp_path / "slurm"
    slurm.mkdir()
    (slurm / "5.log").touch()

    class Watched(Group):
        pass

    failed.watch(Watched)
    group = Watched("eagle", 2, health, point)
    group.log_error(f"job '5' FAILED.{HINT}", aux_logs=[str(slurm / "5.log")])
    assert failed.lines() == [
        "eagle, trial 2: job '5' FAILED; eagle: the server ended; last lines of s.log; see slurm/5.log"
    ]
    assert group.logged == [f"job '5' FAILED.{HINT}"], "Snakemake says what it says"


def test_a_job_without_a_log_may_not_have_seen_the_folder(failed: FailedSessions):
    failed.add(Group("plain", 1).jobs, "job '7' FAILED", ["/elsewhere/7.log"])
    assert failed.lines() == [
        "plain, trial 1: job '7' FAILED; it wrote no /elsewhere/7.log: "
        "does its node see this folder under the same path?"
    ]


def test_one_reason_of_many_sessions_is_said_once(failed: FailedSessions):
    for trial in range(1, 8):
        failed.add(
            Group("plain", trial).jobs, "sbatch: no partition x\n    sbatch call:\n  sbatch …", ()
        )
    (line,) = failed.lines()
    assert line == (
        "plain, trial 1; plain, trial 2; plain, trial 3; plain, trial 4; and 3 more: "
        "sbatch: no partition x"
    )


def test_a_trial_on_one_node_is_told_as_its_sessions(failed: FailedSessions):
    failed.add([*Group("plain", 1).jobs, *Group("eagle", 1).jobs], "job '6' TIMEOUT", ())
    assert failed.lines() == ["eagle, trial 1; plain, trial 1: job '6' TIMEOUT"]


_TERM_WITHIN_THE_LOCK = """
import os, signal, threading, time
from snakemake.scheduling.job_scheduler import JobScheduler
from crossover.workflow import end_on_sigterm

end_on_sigterm(JobScheduler)
scheduler = JobScheduler.__new__(JobScheduler)
scheduler._lock, scheduler._open_jobs = threading.Lock(), threading.Semaphore(0)
signal.signal(signal.SIGTERM, scheduler.exit_gracefully)
with scheduler._lock:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)  # the handler runs in here
scheduler._open_jobs.acquire()
print(scheduler._user_kill)
"""


def test_term_ends_a_snakemake_that_holds_the_lock_of_its_own_handler():
    done = subprocess.run(
        [sys.executable, "-c", _TERM_WITHIN_THE_LOCK],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout == "graceful\n"
