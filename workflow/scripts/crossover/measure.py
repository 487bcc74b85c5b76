"""Measure one point: reset the cache, put load on the server, turn what came back into rows."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from crossover import control, metrics, records
from crossover.engines.base import Counters, Engine
from crossover.errors import CrossoverError, MeasurementError, ServerDiedError
from crossover.load import window
from crossover.load.client import LoadRun, Progress, run_closed_loop
from crossover.load.decode import Answer, chunk_row, decode, request_row
from crossover.load.prompts import requests_for

if TYPE_CHECKING:
    import pyarrow as pa

    from crossover.campaign import Load, Model, Workload

_IDLE_WAIT_S = 5.0
_IDLE_POLL_S = 0.1
_DEATH_NOTICE_S = 2.0

Samples = Callable[[float, float], list[dict[str, float | None]]]


@dataclass(frozen=True)
class MeasuredPoint:
    """A measured point: its row of `records.POINTS`, and its requests and chunks.

    The row has every column; those of the GPU, the digests, protocol and commit are still None.
    """

    point: dict[str, Any]
    requests: pa.Table
    chunks: pa.Table


def measure_point(
    *,
    where: Mapping[str, Any],
    base_url: str,
    engine: Engine,
    workload: Workload,
    model: Model,
    load: Load,
    seed: int,
    prompts: Sequence[str],
    samples: Samples,
    server_alive: Callable[[], str | None],
    on_progress: Callable[[Progress], None] | None = None,
    api_key: str | None = None,
) -> MeasuredPoint:
    """Measure one level of one workload on a server that is ready.

    Args:
        where: the columns that say where the point belongs: campaign, variant, workload, trial,
            concurrency, session_id.
        base_url: of the server, http:// only.
        engine: what the server is.
        workload: what is asked.
        model: its name goes into the requests.
        load: ramp, warm-up, window and timeouts.
        seed: of the campaign; draws the order of prompts.
        prompts: the workload's prompt set.
        samples: the supervisor's samples in a span of the monotonic clock; each a dict of `t`,
            `running_requests`, `queued_requests`, `kv_cache_usage`, and, cumulative,
            `server_cpu_s` and `machine_busy_s`, with `machine_cores`; None where unknown.
        server_alive: None while the server lives, else how it ended.
        on_progress: called about twice a second.
        api_key: for servers that ask for one.

    Raises:
        ServerDiedError: the server ended.
        MeasurementError: it cannot be reached or read.
    """
    concurrency = where["concurrency"]
    requests = requests_for(
        workload,
        prompts,
        trial=where["trial"],
        concurrency=concurrency,
        seed=seed,
        model_name=model.name,
        base_url=base_url,
        fields=engine.request_fields(workload),
        api_key=api_key,
    )

    def check() -> None:
        if (how := server_alive()) is not None:
            raise ServerDiedError(
                f"{where['variant']}/{where['workload']} at concurrency {concurrency}, trial "
                f"{where['trial']}: the server ended during the measurement: {how}"
            )

    with control.client(base_url, api_key) as http:
        readings = _Readings(engine, http, base_url)
        try:
            _wait_until_idle(engine, http)
            cache_reset = engine.reset_cache(http)
            readings.take("before")
            run = run_closed_loop(
                base_url,
                requests,
                concurrency,
                load,
                cancel_at_close=workload.ignore_eos,
                on_window=readings.take_aside,
                on_progress=on_progress or (lambda progress: None),
                check=check,
            )
            _wait_until_idle(engine, http)
            readings.take("after")
        except (MeasurementError, httpx.HTTPError) as error:
            _wait_for_death_notice(check)
            if isinstance(error, httpx.HTTPError):
                raise MeasurementError(
                    f"{base_url} does not answer beside the load: {error!r}; see the session's "
                    "server log"
                ) from error
            raise
    answers = [decode(exchange) for exchange in run.exchanges]
    fixed_length = workload.max_tokens if workload.ignore_eos else None
    return _measured(where, run, answers, readings, cache_reset, samples, fixed_length)


# ---------------------------------------------------------------------- beside the load


@dataclass
class _Readings:
    """The engine's counters before the load, at both ends of the window, and after the load."""

    engine: Engine
    http: httpx.Client
    base_url: str
    counters: dict[str, Counters] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    def take(self, when: str) -> None:
        for thread in self.threads:
            thread.join()
        self.counters[when] = self.engine.counters(self.http)

    def take_aside(self, when: str, at_s: float) -> None:
        """Read in a thread, so that the load does not wait; a failed reading is left out."""

        def read() -> None:
            try:
                self.counters[when] = self.engine.counters(self.http)
            except (httpx.HTTPError, CrossoverError):
                return

        self.threads.append(threading.Thread(target=read, daemon=True))
        self.threads[-1].start()

    def between(self, earlier: str, later: str) -> Counters:
        """Counts between two readings; nothing known where either is missing."""
        if earlier not in self.counters or later not in self.counters:
            return Counters()
        return self.counters[later].since(self.counters[earlier])


def _wait_until_idle(engine: Engine, http: httpx.Client) -> None:
    """Some engines count a request only when it ends, and see a closed connection late."""
    deadline = time.monotonic() + _IDLE_WAIT_S
    while engine.gauges(http).running_requests and time.monotonic() < deadline:
        time.sleep(_IDLE_POLL_S)


def _wait_for_death_notice(check: Callable[[], None]) -> None:
    """Let the death of the server, if that is what happened, be the error that is shown."""
    deadline = time.monotonic() + _DEATH_NOTICE_S
    while time.monotonic() < deadline:
        check()
        time.sleep(_IDLE_POLL_S)


# ---------------------------------------------------------------------- the rows


def _measured(
    where: Mapping[str, Any],
    run: LoadRun,
    answers: Sequence[Answer],
    readings: _Readings,
    cache_reset: bool | None,
    samples: Samples,
    fixed_length: int | None,
) -> MeasuredPoint:
    tokens = window.tokens_of(answers)
    window_ns = _steady_window(run, answers, tokens, where["concurrency"])
    rows = [request_row(answer, window_ns) for answer in answers]
    point = {
        **dict.fromkeys(column.name for column in records.POINTS),
        **where,
        **_of_run(run),
        **_of_requests(rows, answers),
        **_of_tokens(run, tokens, window_ns, rows),
        **_of_engine(readings),
        "cache_reset": cache_reset,
    }
    known = []
    if window_ns is not None:
        start_s, end_s = (ns / 1e9 for ns in window_ns)
        known = samples(start_s, end_s)
        point["achieved_concurrency"] = metrics.achieved_concurrency(
            [(row["sent_s"], row["end_s"]) for row in rows], start_s, end_s
        )
    point |= _of_samples(known)
    facts = _Facts(point, rows, tokens, window_ns, known, fixed_length)
    point["invalid_reasons"] = [name for name, holds in INVALID.items() if holds(facts)]
    point["warnings"] = [name for name, holds in WARNINGS.items() if holds(facts)]
    point["valid"] = not point["invalid_reasons"]
    return MeasuredPoint(
        point,
        records.to_table(({**where, **row} for row in rows), records.REQUESTS),
        records.to_table((chunk_row(a) for a in answers if a.sizes), records.CHUNKS),
    )


def _steady_window(
    run: LoadRun, answers: Sequence[Answer], tokens: window.Tokens, concurrency: int
) -> tuple[int, int] | None:
    """The run's window without what MSER-5 drops; two completions a client always remain."""
    if run.window_ns is None:
        return None
    start_ns, end_ns = run.window_ns
    ends = sorted(a.exchange.end_ns for a in answers if a.status == "ok")
    inside = [ns for ns in ends if start_ns <= ns < end_ns]
    floor = 2 * concurrency
    latest_ns = inside[-floor] if len(inside) >= floor else start_ns
    return window.steady_start_ns(tokens, start_ns, end_ns, latest_ns), end_ns


def _of_run(run: LoadRun) -> dict[str, Any]:
    load_s = (run.ended_ns - run.started_ns) / 1e9
    return {
        "started_at": run.started_at,
        "started_s": run.started_ns / 1e9,
        "load_s": load_s,
        "client_cpu_share": run.cpu_s / load_s,
        "stamp_source": run.stamp_source,
        "connect_s_mean": metrics.mean(run.connect_s),
        "clock_drift_us": run.clock_drift_us,
    }


def _of_requests(rows: Sequence[Mapping[str, Any]], answers: Sequence[Answer]) -> dict[str, Any]:
    by_status = Counter(row["status"] for row in rows)
    good = [row for row in rows if row["status"] == "ok"]
    measured = [
        (row, answer)
        for row, answer in zip(rows, answers, strict=True)
        if row["status"] == "ok" and row["in_window"]
    ]
    ttfts = [metrics.ttft_s(row["sent_s"], row["first_token_s"]) for row, _ in measured]
    tpots = [
        metrics.tpot_s(
            row["first_token_s"],
            row["last_token_s"],
            row["output_tokens"],
            row["first_chunk_tokens"],
        )
        for row, _ in measured
    ]
    tpots = [t for t in tpots if t is not None]
    itls = [gap for _, answer in measured for gap in metrics.itl_s(answer.stamps_ns)]
    e2es = [metrics.e2e_s(row["sent_s"], row["end_s"]) for row, _ in measured]
    prompt_tokens = [n for row in good if (n := row["prompt_tokens"]) is not None]
    cached = [row for row in good if None not in (row["cached_tokens"], row["prompt_tokens"])]
    cacheable = sum(row["prompt_tokens"] for row in cached)
    chunks = sum(row["chunks"] for row in good)
    return {
        "requests": len(rows),
        "completed": by_status["ok"],
        "failed": by_status["failed"],
        "cancelled": by_status["cancelled"],
        "error_share": metrics.error_share(by_status["failed"], by_status["ok"]),
        "errors_by_class": dict(Counter(r["error_class"] for r in rows if r["error_class"])),
        "resent": sum(row["resent"] > 0 for row in rows),
        "prompt_tokens_mean": metrics.mean(prompt_tokens),
        "output_tokens_mean": metrics.mean([row["output_tokens"] for row in good]),
        "cached_tokens_share": sum(row["cached_tokens"] for row in cached) / cacheable
        if cacheable
        else None,
        "distinct_prompts": len({row["prompt_id"] for row in rows}),
        **metrics.summary("ttft_s", ttfts),
        **metrics.summary("tpot_s", tpots),
        **metrics.summary("itl_s", itls),
        **metrics.summary("e2e_s", e2es),
        "decode_rate_tokens_per_s": metrics.decode_rate_tokens_per_s(tpots),
        "tokens_per_chunk": sum(r["output_tokens"] for r in good) / chunks if chunks else None,
        "events": sum(row["chunks"] for row in rows),
        "merged_events": sum(sum(answer.merged) for answer in answers),
    }


def _of_tokens(
    run: LoadRun,
    tokens: window.Tokens,
    window_ns: tuple[int, int] | None,
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    received = float(tokens.count.sum())
    columns = {
        "received_output_tokens": received,
        "whole_run_tokens_per_s": received * 1e9 / (run.ended_ns - run.started_ns),
        "token_times_source": tokens.source if received else None,
    }
    if window_ns is not None:
        start_ns, end_ns = window_ns
        window_s = (end_ns - start_ns) / 1e9
        inside = float(tokens.count[tokens.inside(start_ns, end_ns)].sum())
        columns |= {
            "window_start_s": start_ns / 1e9,
            "window_s": window_s,
            "output_throughput_tokens_per_s": inside / window_s,
            "cv_within": window.cv_within(window.bins(tokens, start_ns, end_ns)),
        }
    return columns


def _of_engine(readings: _Readings) -> dict[str, Any]:
    """The engine's own counts over the whole point; tokens per step in the window (METHOD §9).

    Where the counters were not read at both ends of the window or did not move in it, tokens per
    step is that of the whole point.
    """
    whole = readings.between("before", "after")
    inside = readings.between("open", "close")
    in_window = metrics.tokens_per_step(inside.output_tokens, inside.accepted_tokens)
    return {
        "engine_output_tokens": whole.output_tokens,
        "verify_steps": whole.verify_steps,
        "drafted_tokens": whole.drafted_tokens,
        "accepted_tokens": whole.accepted_tokens,
        "acceptance_length": metrics.acceptance_length(whole.accepted_tokens, whole.verify_steps),
        "acceptance_rate": metrics.acceptance_rate(whole.accepted_tokens, whole.drafted_tokens),
        "tokens_per_step": in_window
        or metrics.tokens_per_step(whole.output_tokens, whole.accepted_tokens),
        "accepted_per_position": metrics.share_per_position(
            whole.accepted_per_position, whole.verify_steps
        ),
        "preemptions": whole.preemptions,
    }


def _of_samples(known: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    def values(name: str) -> list[float]:
        return [s[name] for s in known if s.get(name) is not None]

    def rate(name: str) -> float | None:
        ends = [s for s in known if s.get(name) is not None]
        if len(ends) < 2:
            return None
        return metrics.rate(ends[0][name], ends[-1][name], ends[-1]["t"] - ends[0]["t"])

    busy, cores = rate("machine_busy_s"), values("machine_cores")
    return {
        "running_requests_mean": metrics.mean(values("running_requests")),
        "queued_requests_mean": metrics.mean(values("queued_requests")),
        "kv_cache_usage_max": max(values("kv_cache_usage"), default=None),
        "server_cpu_share": rate("server_cpu_s"),
        "machine_cpu_share": busy / cores[0] if busy is not None and cores else None,
    }


# ---------------------------------------------------------------------- validity


@dataclass(frozen=True)
class _Facts:
    """What the rules below look at. `samples`: those inside the window; `fixed_length`: tokens
    that every answer was to have, None where answers end by themselves.
    """

    point: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    tokens: window.Tokens
    window_ns: tuple[int, int] | None
    samples: Sequence[Mapping[str, float | None]]
    fixed_length: int | None

    def over(self, column: str, limit: float) -> bool:
        value = self.point[column]
        return value is not None and value > limit


def _errors(facts: _Facts) -> bool:
    """More than 1 % of the requests failed (METHOD §2.5)."""
    return facts.over("error_share", 0.01)


def _no_tokens(facts: _Facts) -> bool:
    """Nothing arrived in the window."""
    return not facts.over("output_throughput_tokens_per_s", 0)


def _too_short(facts: _Facts) -> bool:
    """Fewer than C completions of warm-up, or than 2C in the window (METHOD §2.3)."""
    if facts.window_ns is None:
        return True
    start_s, end_s = (ns / 1e9 for ns in facts.window_ns)
    ends = [row["end_s"] for row in facts.rows if row["status"] == "ok"]
    concurrency = facts.point["concurrency"]
    return (
        sum(end < start_s for end in ends) < concurrency
        or sum(start_s <= end < end_s for end in ends) < 2 * concurrency
    )


def _is_stationary(facts: _Facts) -> bool | None:
    if facts.window_ns is None:
        return None
    return window.is_stationary(window.bins(facts.tokens, *facts.window_ns))


def _not_stationary(facts: _Facts) -> bool:
    """The window's halves differ (METHOD §2.2)."""
    return _is_stationary(facts) is False


def _concurrency_not_held(facts: _Facts) -> bool:
    """Fewer than 95 % of the level were in flight."""
    achieved = facts.point["achieved_concurrency"]
    return achieved is not None and achieved < 0.95 * facts.point["concurrency"]


def _queue_limited(facts: _Facts) -> bool:
    """In most samples a request waited, and a tenth of the level; or more than one, and a fifth
    of the level, had not even reached the engine (a front end that cannot keep up).

    By at least 3 samples of the server's own gauges. Between two steps of a batch a request that
    has just come may be seen waiting, or not yet seen, which is no limit.
    """

    def usual(name: str) -> float | None:
        values = [s[name] for s in facts.samples if s.get(name) is not None]
        return statistics.median(values) if len(values) >= 3 else None

    concurrency = facts.point["concurrency"]
    queued, running = usual("queued_requests"), usual("running_requests")
    return (queued is not None and queued >= max(1.0, 0.1 * concurrency)) or (
        running is not None and concurrency - running > max(1.0, 0.2 * concurrency)
    )


def _client_limited(facts: _Facts) -> bool:
    """The load client used more than 90 % of a core."""
    return facts.over("client_cpu_share", 0.9)


INVALID: Mapping[str, Callable[[_Facts], bool]] = {
    "errors": _errors,
    "no_tokens": _no_tokens,
    "too_short": _too_short,
    "not_stationary": _not_stationary,
    "concurrency_not_held": _concurrency_not_held,
    "queue_limited": _queue_limited,
    "client_limited": _client_limited,
}
"""Why a point may not carry a verdict."""


def _stationarity_unknown(facts: _Facts) -> bool:
    """There are too few arrivals to tell."""
    return _is_stationary(facts) is None


def _tokens_estimated(facts: _Facts) -> bool:
    """More than 20 % of the window's tokens are those of cancelled requests without usage."""
    if facts.window_ns is None:
        return False
    inside = facts.tokens.inside(*facts.window_ns)
    estimated = facts.tokens.count[inside & facts.tokens.estimated].sum()
    return bool(estimated > 0.2 * facts.tokens.count[inside].sum())


def _events_merged(facts: _Facts) -> bool:
    """More than 5 % of the events share a stamp, and not because a step accepts several tokens."""
    return not facts.point["drafted_tokens"] and facts.over(
        "merged_events", 0.05 * facts.point["events"]
    )


def _lengths_vary(facts: _Facts) -> bool:
    """Answers were to have max_tokens and have not: cancelling those in flight favours short ones."""
    lengths = {row["output_tokens"] for row in facts.rows if row["status"] == "ok"}
    return facts.fixed_length is not None and bool(lengths - {facts.fixed_length})


def _queue_unknown(facts: _Facts) -> bool:
    """The server tells neither queue nor running requests: a cap would go unseen."""
    return facts.point["queued_requests_mean"] is None and (
        facts.point["running_requests_mean"] is None
    )


def _cache_not_reset(facts: _Facts) -> bool:
    """The server has a route for it and did not confirm."""
    return facts.point["cache_reset"] is False


def _prompts_cached(facts: _Facts) -> bool:
    """More than half of the prompt tokens came from a cache although all prompts are unique."""
    return facts.over("cached_tokens_share", 0.5)


def _user_stamps(facts: _Facts) -> bool:
    """Arrival times are those of this process, not the kernel's."""
    return facts.point["stamp_source"] == "user"


def _clock_set(facts: _Facts) -> bool:
    """The wall clock moved by more than 1 ms; kernel stamps near that moment are off by it."""
    return abs(facts.point["clock_drift_us"]) > 1000


WARNINGS: Mapping[str, Callable[[_Facts], bool]] = {
    "stationarity_unknown": _stationarity_unknown,
    "tokens_estimated": _tokens_estimated,
    "events_merged": _events_merged,
    "lengths_vary": _lengths_vary,
    "queue_unknown": _queue_unknown,
    "cache_not_reset": _cache_not_reset,
    "prompts_cached": _prompts_cached,
    "user_stamps": _user_stamps,
    "clock_set": _clock_set,
}
"""What a reader should know although the point may be valid."""
