"""Campaigns, points, sessions, and what the analysis makes of them, for tests of the report.

Throughputs follow a small cost model, so that a speculating variant wins at low load and loses
at high load; nothing here is a measurement.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from crossover.campaign import Analysis, Campaign, Load, Model, Speculation, Variant, Workload
from crossover.records import POINTS, REQUESTS, SESSIONS, to_table, write_parquet
from crossover.verdicts import judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

LEVELS = (1, 4, 16, 64)
COLUMN = "output_throughput_tokens_per_s"


def campaign(
    variants: Iterable[str] = ("plain", "ngram-3"),
    *,
    workloads: Iterable[str] = ("code",),
    engine: str = "llamacpp",
    levels: tuple[int, ...] = LEVELS,
    trials: int = 3,
    **analysis: Any,
) -> Campaign:
    """A campaign whose first variant is the baseline; the others speculate."""
    names = list(variants)
    model = Model("SmolLM2-135M-Instruct")
    return Campaign(
        name="laptop-ngram",
        baseline=names[0],
        model=model,
        variants={
            name: Variant(
                name,
                engine,
                model,
                speculation=Speculation("ngram", 3) if i else None,
            )
            for i, name in enumerate(names)
        },
        workloads={
            w: Workload(w, f"config/prompts/{w}.jsonl", "0" * 64, max_tokens=48, ignore_eos=True)
            for w in workloads
        },
        load=Load(concurrency=levels, trials=trials),
        analysis=Analysis(**analysis),
    )


def throughput(place: int, concurrency: int, trial: int) -> float:
    """Tokens/s of the variant at `place` (0: the baseline); a trial differs by about 1 %."""
    tokens_per_step, cost = (1.0, 1.0) if place == 0 else (1.6 + 0.3 * place, 1.15 + 0.05 * place)
    step_s = 0.012 + cost**2 * 0.0009 * concurrency * (1 if place == 0 else 2.1)
    wobble = 1 + 0.01 * math.sin(7.0 * trial + 3.0 * place + concurrency)
    return concurrency * tokens_per_step / step_s * wobble


def point(
    c: Campaign, variant: str, workload: str, concurrency: int, trial: int, **changes: Any
) -> dict[str, Any]:
    """A valid point; `changes` override its columns."""
    place = list(c.variants).index(variant)
    tokens_per_s = throughput(place, concurrency, trial)
    tpot_s = concurrency / tokens_per_s
    ttft_s = 0.04 + 0.02 * concurrency
    speculates = c.variants[variant].speculation is not None
    return {
        "campaign": c.name,
        "variant": variant,
        "workload": workload,
        "trial": trial,
        "concurrency": concurrency,
        "session_id": session_id(variant, trial),
        "started_at": 1_760_000_000.0 + 600 * trial + 60 * place + concurrency,
        "started_s": 1000.0,
        "window_start_s": 1010.0,
        "window_s": 60.0,
        "load_s": 75.0,
        "valid": True,
        "invalid_reasons": [],
        "warnings": [],
        COLUMN: tokens_per_s,
        "requests": 6 * concurrency + 20,
        "completed": 6 * concurrency + 20,
        "failed": 0,
        "errors_by_class": {},
        "ttft_s_p50": ttft_s,
        "ttft_s_p90": 1.8 * ttft_s,
        "ttft_s_p99": 2.5 * ttft_s,
        "tpot_s_p50": tpot_s,
        "tpot_s_p90": 1.2 * tpot_s,
        "tpot_s_p99": 1.4 * tpot_s,
        "e2e_s_p50": ttft_s + 47 * tpot_s,
        "e2e_s_p90": 1.2 * (ttft_s + 47 * tpot_s),
        "e2e_s_p99": 1.5 * (ttft_s + 47 * tpot_s),
        "decode_rate_tokens_per_s": 1 / tpot_s,
        "output_tokens_mean": 48.0,
        "tokens_per_chunk": 1.6 if speculates else 1.0,
        "acceptance_length": 1.6 + 0.3 * place if speculates else None,
        "tokens_per_step": 1.6 + 0.3 * place if speculates else None,
        "verify_steps": 1000.0 if speculates else None,
        "drafted_tokens": 3000.0 if speculates else None,
        "accepted_tokens": 1000.0 * (0.6 + 0.3 * place) if speculates else None,
        "accepted_per_position": [0.7, 0.4, 0.2] if speculates else None,
        "stamp_source": "kernel",
        "token_times_source": "events",
        **changes,
    }


def points(c: Campaign, changes: Mapping[tuple, Mapping[str, Any]] | None = None) -> pa.Table:
    """Every point; `changes` maps (variant, workload, concurrency, trial), None = any, to columns."""
    rows = []
    for variant in c.variants:
        for trial in range(1, c.load.trials + 1):
            for workload, concurrency in sorted(
                (w, n) for w in c.workloads for n in c.load.concurrency
            ):
                place = (variant, workload, concurrency, trial)
                wanted: dict[str, Any] = {}
                for pattern, columns in (changes or {}).items():
                    if all(a is None or a == b for a, b in zip(pattern, place, strict=True)):
                        wanted |= columns
                rows.append(point(c, *place, **wanted))
    return to_table(rows, POINTS)


ALL_FAILED = {
    COLUMN: None,
    "valid": False,
    "invalid_reasons": ["errors"],
    "completed": 0,
    "failed": 26,
    "requests": 26,
    "errors_by_class": {"http_503": 20, "timeout": 6},
    **dict.fromkeys(
        (
            "ttft_s_p50",
            "ttft_s_p99",
            "tpot_s_p50",
            "tpot_s_p99",
            "decode_rate_tokens_per_s",
            "acceptance_length",
            "tokens_per_step",
            "accepted_per_position",
            *(f"{what}_s_p90" for what in ("ttft", "tpot", "e2e")),
            *(f"e2e_s_{q}" for q in ("p50", "p99")),
        )
    ),
}


def requests(c: Campaign, folder: Path, table: pa.Table | None = None) -> str:
    """A Parquet file with the requests of every point: clients that take turns from the start of
    the load to its end, each answer 48 tokens, the first failures with their class."""
    rows = []
    for p in (points(c) if table is None else table).to_pylist():
        failures = [name for name, n in p["errors_by_class"] or [] for _ in range(n)]
        duration_s = 48 * p["concurrency"] / (p[COLUMN] or 100.0)
        for client in range(min(p["concurrency"], 4)):
            sent_s = p["started_s"] + 0.01 * client
            while sent_s + duration_s <= p["started_s"] + p["load_s"]:
                failed = failures.pop() if failures else None
                rows.append(
                    {
                        **{k: p[k] for k in ("campaign", "variant", "workload", "trial")},
                        "concurrency": p["concurrency"],
                        "session_id": p["session_id"],
                        "request_id": len(rows),
                        "client": client,
                        "sent_s": sent_s,
                        "first_token_s": None if failed else sent_s + 0.1 * duration_s,
                        "last_token_s": None if failed else sent_s + duration_s,
                        "end_s": sent_s + duration_s,
                        "status": "failed" if failed else "ok",
                        "error_class": failed,
                        "error_message": f"\x1b[31m{failed}\x1b[0m: <b>no</b>" if failed else None,
                        "output_tokens": None if failed else 48,
                        "chunks": None if failed else 48,
                        "first_chunk_tokens": None if failed else 1,
                    }
                )
                sent_s += duration_s
    path = folder / "requests.parquet"
    write_parquet(to_table(rows, REQUESTS), path)
    return str(path)


def session_id(variant: str, trial: int) -> str:
    return f"20251009T{8 + trial:02d}0000-{variant}-{trial}"


def sessions(c: Campaign) -> pa.Table:
    """One session a variant and trial, in the campaign's order."""
    return to_table(
        [
            {
                "campaign": c.name,
                "variant": s.variant,
                "trial": s.trial,
                "session_id": session_id(s.variant, s.trial),
                "rank": s.rank,
                "engine": c.variants[s.variant].engine,
                "command": ["llama-server", "--model", "models/smol lm2.gguf", "--port", "8080"],
                "env": {"OMP_NUM_THREADS": "2"},
                "server_digest": f"digest-{s.variant}",
                "host": "bench",
                "boot_id": "boot",
                "hardware": '{"cpu": "8 cores"}',
                "started_at": 1_760_000_000.0 + 300 * s.rank + 7 * (s.rank % 3),
                "ready_after_s": 3.2,
                "engine_version": "b6700",
                "description": '{"n_ctx": 4096}',
                "stop_reason": "teardown",
                "exit_code": 0,
                "killed": False,
                "processes_left": [],
                "port_closed": True,
            }
            for s in c.sessions
        ],
        SESSIONS,
    )


def results(
    c: Campaign, table: pa.Table | None = None, file: str | None = None, **changes: Any
) -> tuple[pa.Table, pa.Table, dict[str, Any], dict[str, Any]]:
    """Points, sessions, verdicts and policy as the analysis finds them; `changes` override keys
    of every verdict."""
    table = points(c) if table is None else table
    of_sessions = sessions(c)
    verdicts, policy = judge(table.to_pandas(), of_sessions.to_pandas(), c, file)
    verdicts["verdicts"] = [v | changes for v in verdicts["verdicts"]]
    return table, of_sessions, verdicts, policy


PROVENANCE = {
    "commands": ["snakemake -c1 --configfile config/config.yaml"],
    "commit": "0123abc",
    "versions": {"python": "3.11", "llamacpp": "b6700"},
    "hardware": {"cpu": "8 cores", "gpus": []},
    "config_sha256": "ab" * 32,
    "config_text": "campaign: laptop-ngram\n",
    "dates": "2025-10-09",
}
