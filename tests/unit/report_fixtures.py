"""Campaigns, points, sessions and verdicts for tests of the report.

Throughputs follow a small cost model, so that a speculating variant wins at low load and loses
at high load; nothing here is a measurement.
"""

from __future__ import annotations

import math
from typing import Any, TYPE_CHECKING


from crossover.campaign import Analysis, Campaign, Load, Model, Speculation, Variant, Workload
from crossover.records import POINTS, SESSIONS, to_table

if TYPE_CHECKING:
    import pyarrow as pa
    from collections.abc import Iterable, Mapping

LEVELS = (1, 4, 16, 64)
COLUMN = "output_throughput_tokens_per_s"


def campaign(
    variants: Iterable[str] = ("plain", "ngram-3"),
    *,
    workloads: Iterable[str] = ("code",),
    engine: str = "llamacpp",
    levels: tuple[int, ...] = LEVELS,
    trials: int = 3,
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
        analysis=Analysis(),
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
        "window_s": 60.0,
        "valid": True,
        "invalid_reasons": [],
        "warnings": [],
        COLUMN: tokens_per_s,
        "requests": 6 * concurrency + 20,
        "completed": 6 * concurrency + 20,
        "failed": 0,
        "errors_by_class": {},
        "ttft_s_p50": ttft_s,
        "ttft_s_p99": 2.5 * ttft_s,
        "tpot_s_p50": tpot_s,
        "tpot_s_p99": 1.4 * tpot_s,
        "decode_rate_tokens_per_s": 1 / tpot_s,
        "acceptance_length": 1.6 + 0.3 * place if speculates else None,
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
        )
    ),
}


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
                "host": "bench",
                "hardware": '{"cpu": "8 cores"}',
                "started_at": 1_760_000_000.0 + 300 * s.rank,
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


def verdict(
    c: Campaign,
    table: pa.Table,
    variant: str,
    workload: str,
    *,
    baseline: str | None = None,
    half_width: float = 0.03,
) -> dict[str, Any]:
    """A verdict of the right shape: ratios of means, bounds of a fixed relative half-width."""
    baseline = baseline or c.baseline
    rows = [p for p in table.to_pylist() if p["workload"] == workload and p["valid"]]

    def values(name: str, level: int) -> list[float]:
        return [p[COLUMN] for p in rows if p["variant"] == name and p["concurrency"] == level]

    levels = []
    for level in c.load.concurrency:
        mine, other = values(variant, level), values(baseline, level)
        if not mine or not other:
            continue
        means = sum(mine) / len(mine), sum(other) / len(other)
        ratio = means[0] / means[1]
        bounds = min(len(mine), len(other)) > 1
        lo, hi = (ratio / (1 + half_width), ratio * (1 + half_width)) if bounds else (None, None)
        levels.append(
            {
                "concurrency": level,
                "ratio": ratio,
                "lo": lo,
                "hi": hi,
                "pointwise_lo": lo,
                "pointwise_hi": hi,
                "label": "?" if not bounds else "+" if lo > 1 else "-" if hi < 1 else "?",
                "variant_mean": means[0],
                "baseline_mean": means[1],
                "variant_trials": len(mine),
                "baseline_trials": len(other),
            }
        )
    trials = len({p["trial"] for p in rows})
    result = {
        "variant": variant,
        "baseline": baseline,
        "workload": workload,
        "metric": "output_throughput",
        "verdict": "inconclusive",
        "sentence": f"{variant} on {workload}: cannot tell whether it is faster than {baseline}.",
        "reasons": {0: ["no_common_levels"], 1: ["single_repeat"]}.get(trials, []),
        "caveats": [],
        "levels": levels,
        "crossings": [],
        "indicative": None,
        "censored": None,
        "dropped_levels": [
            n for n in c.load.concurrency if n not in {x["concurrency"] for x in levels}
        ],
        "bad_rows": [],
        "feasible_max": max((n["concurrency"] for n in levels), default=None),
        "paired": trials >= 3,
        "n_trials": trials,
        "needed": [],
        "equivalence_margin_supported": None,
        "parity": None,
        "break_even": None,
    }
    signs = [n for n in levels if n["label"] != "?"]
    change = next(
        (i for i in range(1, len(signs)) if signs[i]["label"] != signs[i - 1]["label"]), 0
    )
    if change:
        a, b = signs[change - 1], signs[change]
        share = math.log(a["ratio"]) / (math.log(a["ratio"]) - math.log(b["ratio"]))
        c_star = a["concurrency"] * (b["concurrency"] / a["concurrency"]) ** share
        lo, hi = c_star / 1.25, c_star * 1.25
        result |= {
            "verdict": "crossover",
            "sentence": (
                f"On {workload}, {variant} is faster than {baseline} up to concurrency "
                f"{math.floor(c_star)} [{math.floor(lo)}–{math.floor(hi)}]; beyond, slower."
            ),
            "crossings": [
                {
                    "direction": "down",
                    "bracket": [a["concurrency"], b["concurrency"]],
                    "c_star": c_star,
                    "ci": [lo, hi],
                    "hard": [a["concurrency"], b["concurrency"]],
                    "coarse": True,
                }
            ],
        }
    return result


def verdicts(c: Campaign, table: pa.Table, **changes: Any) -> dict[str, Any]:
    """verdicts.json of a campaign; `changes` override keys of every verdict."""
    return {
        "campaign": c.name,
        "settings": {"margin": c.analysis.margin, "confidence": c.analysis.confidence},
        "verdicts": [
            verdict(c, table, variant, workload, baseline=reference) | changes
            for variant, reference in c.comparisons
            for workload in c.workloads
        ],
    }


def policy(c: Campaign, variant: str = "ngram-3", last: int = 13) -> dict[str, Any]:
    return {
        "workloads": {
            w: {
                "table": [
                    {"from": 1, "to": last, "variant": variant},
                    {"from": last + 1, "to": 64, "variant": c.baseline},
                ],
                "thresholds": [f"switch off at {last + 3}, on again at {last - 2}"],
                "advice": f"Use {variant} up to concurrency {last}.",
            }
            for w in c.workloads
        }
    }


PROVENANCE = {
    "commands": ["snakemake -c1 --configfile config/config.yaml"],
    "commit": "0123abc",
    "versions": {"python": "3.11", "llamacpp": "b6700"},
    "hardware": {"cpu": "8 cores", "gpus": []},
    "config_sha256": "ab" * 32,
    "config_text": "campaign: laptop-ngram\n",
    "dates": "2025-10-09",
}
