"""What sessions on other hosts need: resources, time limits, and when they are given up."""

from __future__ import annotations

import os
import time
from dataclasses import asdict

import pytest
from unit.campaigns import campaign, config

from crossover import time_limits, workflow
from crossover.errors import CampaignError, DeviceBusyError
from crossover.run_lock import claim
from crossover.server import processes, session
from crossover.server.session import Handle

RULES = ("start_server", "check_health", "measure_point", "stop_server")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The handle of a session on another host that shows signs of life."""
    monkeypatch.chdir(tmp_path)
    _, pid, ticks = processes.identity().rsplit(":", 2)
    who = f"node7:{pid}:{ticks}"
    handle = Handle(
        session_id="s1",
        variant="spec",
        trial=2,
        base_url="http://127.0.0.1:1",
        port=1,
        pid=None,
        supervisor=who,
        owner=who,
        started_at=0.0,
        started_s=0.0,
        record="sessions/s1.jsonl",
        samples="samples/s1.jsonl",
        server_log="server.log",
    )
    session.append(handle.record, "started")
    handle.write("handle.json")
    return handle


def silence(seconds):
    then = time.time() - seconds
    os.utime("sessions/s1.jsonl", (then, then))


def test_a_session_on_another_host_lives_while_it_writes(elsewhere):
    assert not elsewhere.is_stale()
    silence(session.SILENT_S + 5)
    assert elsewhere.is_stale(), "its host crashed"
    os.mkdir("samples")
    with open(elsewhere.samples, "w"):
        assert not elsewhere.is_stale(), "the record is old, its samples are not"
    session.append(elsewhere.record, "stopped", stopped_at=time.time())
    assert elsewhere.is_stale(), "it says that it has ended"


def test_a_session_of_this_host_is_judged_by_its_processes(elsewhere):
    me = processes.identity()
    silence(session.SILENT_S + 5)
    here = {**asdict(elsewhere), "supervisor": me, "owner": me}
    assert not Handle(**here).is_stale()
    gone = me.rsplit(":", 1)[0] + ":1"
    assert Handle(**here | {"owner": gone}).is_stale()


def test_a_run_is_refused_beside_a_session_that_lives_elsewhere(elsewhere):
    workflow.drop_stale_handles(["handle.json"])
    with pytest.raises(DeviceBusyError, match="spec, trial 2, is still being measured on node7"):
        workflow.check_no_session_lives(["handle.json"])
    silence(session.SILENT_S + 5)
    workflow.drop_stale_handles(["handle.json"])
    workflow.check_no_session_lives(["handle.json"])
    assert not os.path.exists("handle.json")


def test_a_lock_whose_run_had_jobs_on_a_cluster_stays_and_it_is_said_what_to_do(tmp_path, capsys):
    left = tmp_path / "locks"
    left.mkdir()
    (tmp_path / "live.lock").write_text("c")
    (left / "0.input.lock").touch()
    claim(cluster=False, folder=tmp_path)
    assert list(left.iterdir())
    assert "snakemake --unlock" in capsys.readouterr().err


def test_a_point_may_take_as_long_as_its_settings_allow(tmp_path):
    load = config()["load"] | {
        "ramp_s": 10,
        "warmup": {"max_s": 100},
        "steady": {"min_s": 60, "max_s": 200},
        "request_timeout_s": 50,
    }
    planned = campaign(tmp_path, load=load)
    minutes = time_limits.minutes(planned, planned.variants["plain"], "measure_point")
    assert (minutes - 1) * 60 < 360 + time_limits.JOB_S <= minutes * 60


def test_the_limit_of_a_session_stands_at_its_first_job(tmp_path):
    defaults = config()["defaults"] | {"resources": {"runtime": 90}}
    planned = campaign(tmp_path, defaults=defaults)
    variant = planned.variants["spec"]
    assert [time_limits.minutes(planned, variant, rule) for rule in RULES] == [90, 0, 0, 0]


def test_resources_are_merged_and_change_no_digest(tmp_path):
    before = campaign(tmp_path)
    asked = config(defaults=config()["defaults"] | {"resources": {"gpu": 1, "mem_mb": 1000}})
    asked["variants"]["spec"]["resources"] = {"gpu": 8}
    after = campaign(tmp_path, **asked)
    assert after.variants["spec"].resources == {"gpu": 8, "mem_mb": 1000}
    assert after.resources == ("gpu", "mem_mb")
    assert after.server_digests == before.server_digests
    assert after.point_digests == before.point_digests


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"gpu": 1}, "variants.plain.resources: gpu is given by other variants only"),
        ({"device_gpu0": 1}, "device_gpu0"),
        ({"gpu": 1.5}, "variants.spec.resources.gpu"),
    ],
)
def test_resources_that_no_session_can_have_are_refused(tmp_path, resources, said):
    variants = config()["variants"]
    variants["spec"]["resources"] = resources
    with pytest.raises(CampaignError, match=said):
        campaign(tmp_path, variants=variants)
