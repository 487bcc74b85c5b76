"""How long, and in how much memory, a campaign of many requests is summarised and judged.

    .venv/bin/python benchmarks/summarise.py [--requests 1000000]

Writes the files of 960 points (about 40 MB for 10⁶ requests) into a temporary folder, then runs
what the rules summarise_points and find_crossover run, each in a process of its own. Goals:
summarise_points of 10⁶ requests 6 s, of 10⁷ 60 s and 4 GiB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests")]

import numpy as np
import pandas as pd
import pyarrow as pa
from unit import campaigns

from crossover import layout
from crossover.campaign import Campaign
from crossover.files import write_json
from crossover.layout import PlannedPoint
from crossover.records import REQUESTS, arrow_schema, write_parquet
from crossover.server import session
from crossover.summary import summarise
from crossover.verdicts import judge

VARIANTS, LEVELS, TRIALS = 40, 8, 3
WINDOW_S = 60.0
TABLES = {name: f"{name}.parquet" for name in ("points", "requests", "sessions")}


def campaign(folder: Path) -> Campaign:
    """A campaign with goodput and greedy answers, so that its requests are read again."""
    return campaigns.campaign(
        folder,
        variants={
            "plain": {},
            **{f"v{i}": {"args": {"draft-ms": i / 100}} for i in range(1, VARIANTS)},
        },
        load={"concurrency": [2**i for i in range(LEVELS)], "trials": TRIALS},
        analysis={"slo": {"ttft_s": 0.5, "tpot_s": 0.05}},
    )


def write_campaign(requests: int, planned: Campaign) -> None:
    """The files that sessions and points leave."""
    points = list(layout.points(planned))
    each = [len(part) for part in np.array_split(np.empty(requests), len(points))]
    for one in planned.sessions:
        record = layout.session_folder(planned, one) / "sessions" / f"{one.rank:06d}.jsonl"
        facts = {"campaign": planned.name, "variant": one.variant, "trial": one.trial}
        facts |= {"session_id": f"{one.rank:06d}", "started_at": 600.0 * one.rank, "protocol": 1}
        session.append(record, "started", **facts, command=["server"], engine="simulated")
    rng = np.random.default_rng(1)
    for point, count in zip(points, each, strict=True):
        where = {
            "campaign": planned.name,
            "variant": point.session.variant,
            "workload": point.workload,
            "trial": point.session.trial,
            "concurrency": point.level,
            "session_id": f"{point.session.rank:06d}",
        }
        write_point(point, where, count, rng)


def write_point(point: PlannedPoint, where: dict, count: int, rng: np.random.Generator) -> None:
    level = point.level
    speed = 3000 * level / (level + 30) * np.exp(rng.normal(0, 0.01))
    if where["variant"] != "plain":
        speed *= 1.5 - 0.12 * np.log2(level)
    write_json(
        {
            **where,
            "window_start_s": 0.0,
            "window_s": WINDOW_S,
            "valid": True,
            "output_throughput_tokens_per_s": speed,
            "cv_within": 0.005,
            "requests": count,
        },
        point.file,
    )
    sent = np.sort(rng.uniform(0, WINDOW_S, count))
    first = sent + rng.exponential(0.2, count)
    last = first + rng.normal(2, 0.1, count)
    columns = {
        **{name: pa.repeat(pa.scalar(value), count) for name, value in where.items()},
        "request_id": np.arange(count),
        "client": np.arange(count) % level,
        "prompt_id": rng.integers(0, 1000, count),
        "sent_s": sent,
        "first_token_s": first,
        "last_token_s": last,
        "end_s": last,
        "in_window": np.ones(count, bool),
        "status": pa.repeat(pa.scalar("ok"), count),
        "finish_reason": pa.repeat(pa.scalar("length"), count),
        "output_tokens": np.full(count, 64),
        "chunks": np.full(count, 60),
        "first_chunk_tokens": np.ones(count),
        # the same prompt gives the same answer in both arms, but for one in a thousand
        "text_digest": pa.array(
            f"{(i if odd else hash((i, where['trial'], level))) & 0xFFFFFFFFFFFFFFFF:016x}"
            for i, odd in enumerate(rng.random(count) < 0.001)
        ),
    }
    schema = arrow_schema(REQUESTS)
    table = pa.table(
        {
            field.name: pa.array(columns[field.name]).cast(field.type)
            if isinstance(columns.get(field.name), np.ndarray)
            else columns.get(field.name, pa.nulls(count, field.type)).cast(field.type)
            for field in schema
        },
        schema=schema,
    )
    write_parquet(table, Path(point.file).with_name("requests.parquet"))


def summarise_all(planned: Campaign) -> None:
    """What summarise_points does."""
    summarise([point.file for point in layout.points(planned)], **TABLES)


def judge_all(planned: Campaign) -> None:
    """What find_crossover does."""
    points, sessions = (pd.read_parquet(TABLES[name]) for name in ("points", "sessions"))
    judge(points, sessions, planned, TABLES["requests"])


def measure(name: str, work: Callable[[Campaign], None], planned: Campaign) -> None:
    """Run `work` in a process of its own and print its seconds and peak memory."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(name, work, planned))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{name} failed")


def _run(name: str, work: Callable[[Campaign], None], planned: Campaign) -> None:
    began = time.perf_counter()
    work(planned)
    wall_s = time.perf_counter() - began
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name}: {wall_s:.1f} s, peak memory {peak_mib:.0f} MiB", flush=True)


def main(requests: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        planned = campaign(Path())
        write_campaign(requests, planned)
        print(f"{requests} requests in {VARIANTS * LEVELS * TRIALS} points", flush=True)
        measure("summarise_points", summarise_all, planned)
        measure("find_crossover", judge_all, planned)
        os.chdir(ROOT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    main(parser.parse_args().requests)
