"""Crossover's own client as a campaign runs it: the whole `measure_point` job of one level."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from crossover import layout, workflow
from crossover.campaign import Campaign, load_campaign
from crossover.server import processes
from crossover.server.session import Handle
from load.score import Reported
from load.truth import ARRIVAL

_SCRIPT = Path(workflow.__file__).parents[1] / "measure_point.py"


class CrossoverPoint:
    """One point of a campaign of one level, on a server that is there already."""

    def __init__(self, folder: Path, port: int, load: Mapping[str, Any], tokens: int) -> None:
        self._folder = folder
        self._port = port
        prompts = folder / "prompts.jsonl"
        prompts.write_text(json.dumps({"prompt": "hello " * 100}) + "\n")
        self._campaign = _campaign(port, prompts, load, tokens)
        self._plan = next(layout.points(self._campaign))
        (self._results / "point.json").unlink(missing_ok=True)

    @property
    def _results(self) -> Path:
        return self._folder / self._plan.folder

    def command(self) -> tuple[list[str], Mapping[str, str]]:
        """The job's command and what it finds in its environment."""
        session = self._plan.session
        spec = workflow.point_spec(
            self._campaign, session, self._plan.workload, self._plan.level, long_window=False
        )
        here = processes.identity()
        health = self._folder / "health.json"
        Handle(
            session_id="benchmark",
            variant=session.variant,
            trial=session.trial,
            base_url=f"http://127.0.0.1:{self._port}",
            port=self._port,
            pid=None,
            supervisor=here,
            owner=here,
            started_at=time.time(),
            started_s=time.monotonic(),
            record=str(self._folder / "record.jsonl"),
            samples=str(self._folder / "samples.jsonl"),
            server_log=str(self._folder / "server.log"),
        ).write(health)
        words = [sys.executable, _SCRIPT, json.dumps(spec), health, self._results / "point.json"]
        # as an installer does for the other tools, a campaign's first job leaves compiled modules
        environment = {processes.OWNER: here, "PYTHONDONTWRITEBYTECODE": ""}
        return [str(word) for word in words], environment

    def reported(self) -> Reported:
        """What the point's files say."""
        point = self.point()
        requests = pq.read_table(self._results / "requests.parquet").to_pylist()
        scheduled = [
            (row["request_id"], 0, round(row["scheduled_s"] * 1e9))
            for row in requests
            if row["scheduled_s"] is not None
        ]
        sent_ns = {row["request_id"]: round(row["sent_s"] * 1e9) for row in requests}
        records = [(request, 0, ns) for request, ns in sent_ns.items()]
        for row in pq.read_table(self._results / "chunks.parquet").to_pylist():
            start_ns = sent_ns[row["request_id"]]
            records += [
                (row["request_id"], event, start_ns + offset_us * 1000)
                for event, offset_us in enumerate(row["offset_us"], 1)
            ]
        return Reported(
            arrivals=np.array(records, ARRIVAL),
            run_cpu_s=point["client_cpu_share"] * point["load_s"],
            connect_ms=point["connect_s_mean"] * 1000,
            scheduled=np.array(scheduled, ARRIVAL) if scheduled else None,
        )

    def point(self) -> dict[str, object]:
        """The point's row."""
        return json.loads((self._results / "point.json").read_text())


def closed_loop(concurrency: int, requests: int) -> dict[str, Any]:
    """A load whose window closes so that about `requests` are sent in all."""
    per_client = requests / concurrency - 1
    return {
        "concurrency": [concurrency],
        "steady": {"min_s": 0.001, "completions_per_client": per_client, "max_s": 600},
    }


def open_loop(request_rate: float, seconds: float) -> dict[str, Any]:
    """Poisson arrivals for so many seconds."""
    return {
        "arrivals": {"request_rate": [request_rate], "max_in_flight": 4000},
        "steady": {"min_s": seconds, "completions_per_client": 0, "max_s": seconds},
    }


def _campaign(port: int, prompts: Path, load: Mapping[str, Any], tokens: int) -> Campaign:
    return load_campaign(
        {
            "campaign": "benchmark",
            "baseline": "truth",
            "model": {"name": "truth"},
            "defaults": {"engine": "openai", "url": f"http://127.0.0.1:{port}"},
            "variants": {"truth": {}, "again": {}},
            "workloads": {"hello": {"prompts": str(prompts), "max_tokens": tokens}},
            "load": {
                "trials": 1,
                "ramp_s": 0,
                "warmup": {"completions_per_client": 0, "max_s": 1},
                **load,
            },
        },
        "the benchmark's campaign",
    )
