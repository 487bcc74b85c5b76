"""A front end that cannot keep up, caught from what was recorded on an H200 (data/gpu).

vLLM 0.25.1 with one API server and SGLang 0.5.17 with one tokenizer worker: at 250 clients the
processes in front of the engine are the limit, and drafting, which needs fewer events a token,
looks better than it is.
"""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from crossover import validity
from crossover.server.sampling import ServerCpu

DATA = Path(__file__).parents[1] / "data" / "gpu"


def rows(name):
    with open(DATA / name) as file:
        return list(csv.DictReader(file))


def cell(row):
    return "-".join([row.get("run") or row["machine"], row.get("config") or row["label"], row["C"]])


def flags(
    concurrency, *, running, queued, received_share=None, front_end_cpu=None, means=(None, None)
):
    """The reasons that a point with these figures gets."""
    point = {
        "concurrency": concurrency,
        "received_share": received_share,
        "running_requests_p50": running,
        "queued_requests_p50": queued,
        "running_requests_mean": means[0],
        "queued_requests_mean": means[1],
        "front_end_cpu_share_max": front_end_cpu,
    }
    return {n for n in ("queue_limited", "front_end_limited") if validity.INVALID[n](point)}


def vllm_flags(row):
    """vLLM counts tokens where it sends them: there is no received share."""
    return flags(
        int(row["C"]),
        running=float(row["running"]),
        queued=float(row["waiting"]),
        front_end_cpu=float(row["api_cpu_max"]),
    )


def sglang_flags(row):
    """The emptiest moment is taken of the two that were looked at."""
    running = max(float(row["running_mid"]), float(row["running_end"]))
    queued = max(float(row["queue_mid"]), float(row["queue_end"]))
    share = float(row["tok_s"]) / float(row["engine_decode_tok_s"])
    cpu = max(float(row[name] or 0) for name in ("frontend_cpu", "tokworker_cpu_max", "detok_cpu"))
    return flags(
        int(row["C"]), running=running, queued=queued, received_share=share, front_end_cpu=cpu
    )


@pytest.mark.parametrize(
    "row", [r for r in rows("results_h200_vllm0.25.1.csv") if r["label"] == "base"], ids=cell
)
def test_one_api_server_is_the_limit_at_250_clients(row):
    """The false verdict: 13,056 against 12,136 tok/s, 1.08 for EAGLE-3, where it is 0.953."""
    expected = {"front_end_limited"} if row["C"] == "250" else set()
    assert vllm_flags(row) == expected


@pytest.mark.parametrize(
    "row",
    [r for r in rows("results_h200_vllm0.25.1.csv") if r["label"] in ("base4", "e3k3x4", "e3k3")],
    ids=cell,
)
def test_arms_that_keep_up_are_not_flagged(row):
    assert vllm_flags(row) == set()


@pytest.mark.parametrize(
    "row",
    [
        r
        for r in rows("results_h200_sglang0.5.17.csv")
        if r["config"] in ("base", "base4", "e3", "e3x4")
    ],
    ids=cell,
)
def test_one_tokenizer_worker_is_the_limit_from_150_clients(row):
    """The false verdict: 12,977 against 7,395 tok/s, 1.75 for EAGLE-3, where it is 1.03.

    At 150 already a whole core is used and 6 % of the tokens are on their way.
    """
    limited = row["config"] == "base" and row["C"] in ("150", "250")
    assert sglang_flags(row) == ({"front_end_limited"} if limited else set())


@pytest.mark.parametrize(
    "row",
    [r for r in rows("results_h200_sglang0.5.17.csv") if r["config"] == "e3cap"],
    ids=cell,
)
def test_the_silent_cap_is_a_queue(row):
    """Running 47 of 250: no error is returned, the rest wait."""
    assert sglang_flags(row) == (set() if row["C"] == "30" else {"queue_limited"})


STUDIES = Path(__file__).parents[2] / "docs" / "studies"


def recorded(study, campaign):
    """The points of a study that this workflow measured itself, judged by today's rules."""
    points = pq.read_table(STUDIES / study / campaign / "points.parquet").to_pylist()
    return {
        (p["variant"], p["concurrency"], p["trial"]): validity.judge(p)["invalid_reasons"]
        for p in points
    }


def test_a_front_end_that_keeps_up_on_average_alone_is_seen_by_the_mean():
    """One API server at 250: at times the engine runs all, at times 40 fewer; the sign flips."""
    found = recorded("h200-vllm", "h200-vllm-front-end")
    assert found["plain", 250, 1] == found["plain", 250, 2] == ["front_end_limited"]
    assert found["eagle3", 250, 1] == found["eagle3", 250, 2] == []
    assert not any(recorded("h200-vllm", "h200-vllm-synthetic").values())


def test_a_gauge_that_is_not_told_makes_no_front_end():
    assert flags(250, running=None, queued=None) == set()
    assert flags(250, running=47.0, queued=None) == {"queue_limited"}


def test_the_cpu_of_each_process_in_front_of_the_engine():
    """A parent that burns CPU in front of a child that computes."""
    burn = "import sys, time\nend = time.time() + 60\nwhile time.time() < end: pass"
    script = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {burn!r}, 'engine' + '::core'])\n" + burn
    )
    server = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        cpu = ServerCpu(server.pid, "engine::core")
        deadline = time.monotonic() + 20
        while (read := cpu.read())["front_end_cpu_s"] is None or not (
            0 < sum(read["front_end_cpu_s"].values()) < read["server_cpu_s"]
        ):
            assert time.monotonic() < deadline, read
            time.sleep(0.05)
        (name,) = read["front_end_cpu_s"]
        assert name == f"{psutil.Process(server.pid).name()} {server.pid}"
        assert ServerCpu(server.pid, None).read()["front_end_cpu_s"] is None
    finally:
        os.killpg(server.pid, 9)
        server.wait()


def test_a_server_that_is_not_ours_uses_nothing_that_we_know_of():
    assert ServerCpu(None, "x").read() == {"server_cpu_s": None, "front_end_cpu_s": None}
