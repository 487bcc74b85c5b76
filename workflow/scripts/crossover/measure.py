"""Measure one point: reset the cache, put load on the server, read its counters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from crossover import control
from crossover.engines.base import Counters, Engine
from crossover.errors import (
    CrossoverError,
    MeasurementError,
    ServerDiedError,
    ServerHungError,
)
from crossover.load.arrivals import arrivals_of
from crossover.load.client import Progress, run_load
from crossover.load.prompts import requests_for

if TYPE_CHECKING:
    from crossover.campaign import Load, Model, Workload
    from crossover.measured import MeasuredPoint
    from crossover.prompt_sets import PromptSet

_IDLE_WAIT_S = 5.0
_IDLE_POLL_S = 0.1
_DEATH_NOTICE_S = 2.0

Samples = Callable[[float, float], list[dict[str, float | None]]]


def measure_point(
    *,
    where: Mapping[str, Any],
    base_url: str,
    engine: Engine,
    workload: Workload,
    model: Model,
    load: Load,
    seed: int,
    prompts: PromptSet,
    samples: Samples,
    server_alive: Callable[[], str | None],
    on_progress: Callable[[Progress], None] | None = None,
    api_key: str | None = None,
) -> MeasuredPoint:
    """Measure one level of one workload on a server that is ready.

    Args:
        where: the columns that say where the point belongs: campaign, variant, workload, trial,
            session_id, and concurrency or request_rate, whichever `load` has levels of.
        base_url: of the server, http:// or https://.
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
        ServerHungError: it sent nothing on any stream for `load.idle_timeout_s`.
        MeasurementError: it cannot be reached or read.
    """
    level = where[load.axis.name]
    requests = requests_for(
        workload,
        prompts,
        trial=where["trial"],
        level=level,
        seed=seed,
        model_name=model.name,
        base_url=base_url,
        fields=engine.request_fields(workload),
        api_key=api_key,
    )
    schedule = f"{seed} arrivals {workload.name} {where['trial']} {level}"

    def check() -> None:
        if (how := server_alive()) is not None:
            raise ServerDiedError(
                f"{where['variant']}/{where['workload']} at {load.axis.at(level)}, trial "
                f"{where['trial']}: the server ended during the measurement: {how}"
            )

    silence = _Silence(load.idle_timeout_s)

    def tell(progress: Progress) -> None:
        silence.end_if_too_long(progress)
        if on_progress is not None:
            on_progress(progress)

    with control.client(base_url, api_key) as http:
        readings = Readings(engine, http, base_url)
        try:
            _wait_until_idle(engine, http)
            cache_reset = engine.reset_cache(http)
            readings.take("before")
            run = run_load(
                base_url,
                requests,
                arrivals_of(load, level, schedule),
                load,
                cancel_at_close=workload.ignore_eos,
                api_key=api_key,
                on_window=readings.take_aside,
                on_progress=tell,
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
    fixed_length = workload.max_tokens if workload.ignore_eos else None
    from crossover.measured import measured  # with what no request waits for, to write Parquet

    return measured(where, run, readings, cache_reset, samples, fixed_length)


# ---------------------------------------------------------------------- beside the load


@dataclass
class Readings:
    """The engine's counters before the load, at both ends of the window, and after the load."""

    engine: Engine
    http: httpx.Client
    base_url: str
    counters: dict[str, Counters] = field(default_factory=dict)
    read_ns: dict[str, int] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    def take(self, when: str) -> None:
        """Read now, and once what is read aside is there."""
        for thread in self.threads:
            thread.join()
        self._read(when)

    def _read(self, when: str) -> None:
        counters = self.engine.counters(self.http)
        self.read_ns[when] = time.monotonic_ns()
        self.counters[when] = counters

    def take_aside(self, when: str, at_s: float) -> None:
        """Read in a thread, so that the load does not wait; a failed reading is left out."""

        def read() -> None:
            try:
                self._read(when)
            except (httpx.HTTPError, CrossoverError):
                return

        self.threads.append(threading.Thread(target=read, daemon=True))
        self.threads[-1].start()

    def between(self, earlier: str, later: str) -> Counters:
        """Counts between two readings; nothing known where either is missing."""
        if earlier not in self.counters or later not in self.counters:
            return Counters()
        return self.counters[later].since(self.counters[earlier])


class _Silence:
    """How long requests have been in flight and a server has sent nothing on any of their streams.

    One that hangs would else let C requests time out, and again, for as long as the plan lasts.
    Time in which nothing is in flight, as between two requests of a low rate, is no silence; nor
    does it end one, since it also comes when all requests have timed out.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.silent_s = 0.0
        self.seen_s = 0.0

    def end_if_too_long(self, progress: Progress) -> None:
        since_s, self.seen_s = progress.elapsed_s - self.seen_s, progress.elapsed_s
        if progress.events_per_s > 0:
            self.silent_s = 0.0
        elif progress.in_flight:
            self.silent_s += since_s
            if self.silent_s > self.limit_s:
                raise ServerHungError(
                    f"nothing came on any of {progress.in_flight} streams for {self.limit_s:g} s"
                )


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
