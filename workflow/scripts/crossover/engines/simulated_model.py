"""The step-time model of the simulated engine, and what follows from it. No I/O, no clock.

Continuous batching. A step serves the b = min(in flight, max_running) requests of its batch; the
others wait, in order of arrival, and no message says so. With k drafted tokens a step takes

    step_ms = ((memory_ms + kv_ms_per_token·context)^p + (compute_ms_per_token·b·(k+1))^p)^(1/p)
              + overhead_ms + k·draft_ms + [k > 0]·verify_ms + prefill_ms_per_token·admitted

where context: tokens of the batch in the KV cache, and admitted: prompt tokens of the requests
that the step admits, those found in the prefix cache excepted. (A roofline with a soft knee: p
large is a sharp one. Reading weights is paid once a step, arithmetic once a token; speculation
trades the second for fewer steps, so it pays while memory dominates.)

The step which admits a request gives it one token. Every later step gives it 1 + accepted tokens,
where accepted drafts are those before the first rejection and each is accepted with probability
a: A = (1 − a^(k+1))/(1 − a) tokens on average (Leviathan et al., arXiv 2211.17192), cut short by
the end of the answer.

The overhead comes first: a request that arrives within overhead_ms of a step's start joins that
step. A client which sends its next request sooner than that keeps b at its concurrency.
"""

from __future__ import annotations

import functools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


@dataclass(frozen=True)
class Settings:
    """The model's parameters and the server's flags, `memory_ms` as `--memory-ms`.

    Attributes:
        memory_ms: reading the weights, a step.
        kv_ms_per_token: reading the KV cache, a token of context.
        compute_ms_per_token: arithmetic, a token fed to the model.
        knee: p, sharpness of the passage from memory-bound to compute-bound.
        overhead_ms: scheduling, a step; the time in which requests may join it.
        prefill_ms_per_token: a prompt token that is not cached.
        drafted_tokens: k; 0 is decoding without speculation.
        draft_ms: proposing one token for the whole batch.
        verify_ms: further cost of a step that verifies drafts.
        acceptance: a, probability that a draft is accepted if all before it are.
        max_running: admission cap, requests.
        front_end_us: serial work of the front end on what one step gives one request.
        front_end_workers: processes among which the front end's requests are divided.
        prefix_cache: a prompt seen before costs one token of prefill.
    """

    memory_ms: float = 8.0
    kv_ms_per_token: float = 0.0002
    compute_ms_per_token: float = 0.25
    knee: float = 4.0
    overhead_ms: float = 5.0
    prefill_ms_per_token: float = 0.02
    drafted_tokens: int = 0
    draft_ms: float = 0.5
    verify_ms: float = 0.5
    acceptance: float = 0.7
    max_running: int = 256
    front_end_us: float = 0.0
    front_end_workers: int = 1
    prefix_cache: bool = False

    def step_ms(self, batch: float, context_tokens: float, admitted_tokens: float) -> float:
        """Length of a step by the module's formula; all three in the whole batch."""
        k, p = self.drafted_tokens, self.knee
        memory = self.memory_ms + self.kv_ms_per_token * context_tokens
        compute = self.compute_ms_per_token * batch * (k + 1)
        speculation = k * self.draft_ms + self.verify_ms if k else 0.0
        prefill = self.prefill_ms_per_token * admitted_tokens
        return (memory**p + compute**p) ** (1 / p) + self.overhead_ms + speculation + prefill


# ------------------------------------------------------------------ what is true of the model


@functools.lru_cache(maxsize=256)
def steps_per_request(settings: Settings, output_tokens: int) -> float:
    """Mean number of steps of an answer: its first token, then a renewal process.

    S(m) = 1 + Σ_j P(j accepted)·S(m − 1 − j), S(≤ 0) = 0; exact, the cut at the end included.
    """
    k, a = settings.drafted_tokens, settings.acceptance
    accepted = [a**j * (1 - a) for j in range(k)] + [a**k]
    steps = [0.0]
    for left in range(1, output_tokens):
        steps.append(1 + sum(p * steps[max(left - 1 - j, 0)] for j, p in enumerate(accepted)))
    return 1 + steps[-1]


def true_throughput(
    settings: Settings, concurrency: float, output_tokens: int, prompt_tokens: float
) -> float:
    """Output tokens per second of a closed loop of `concurrency` clients without think time.

    b·n/(S·step), with the step's length at the mean context (prompt and half the answer) and the
    mean admission (b/S prompts a step); bounded by the front end, which handles each request S
    times. Every prompt is new to the prefix cache. `concurrency` need not be whole.
    """
    steps = steps_per_request(settings, output_tokens)
    batch = min(concurrency, settings.max_running)
    context = batch * (prompt_tokens + output_tokens / 2)
    step_s = settings.step_ms(batch, context, batch * prompt_tokens / steps) / 1000
    engine = batch * output_tokens / (steps * step_s)
    if not settings.front_end_us:
        return engine
    front_end_s = steps * settings.front_end_us / 1e6
    return min(engine, settings.front_end_workers * output_tokens / front_end_s)


def true_crossovers(
    baseline: Settings,
    variant: Settings,
    output_tokens: int,
    prompt_tokens: float,
    lowest: int = 1,
    highest: int = 1024,
) -> list[float]:
    """All concurrencies in [lowest, highest] at which the arms are equally fast, ascending.

    Looked for between neighbouring whole numbers, then bisected. Empty: one arm is ahead
    throughout.
    """

    def lead(concurrency: float) -> float:
        return true_throughput(
            variant, concurrency, output_tokens, prompt_tokens
        ) - true_throughput(baseline, concurrency, output_tokens, prompt_tokens)

    return [
        _bisect(lead, level, level + 1)
        for level in range(lowest, highest)
        if (lead(level) > 0) != (lead(level + 1) > 0)
    ]


def _bisect(function: Callable[[float], float], low: float, high: float) -> float:
    positive = function(low) > 0
    for _ in range(40):
        middle = (low + high) / 2
        if (function(middle) > 0) == positive:
            low = middle
        else:
            high = middle
    return (low + high) / 2


# ------------------------------------------------------------------ the same, step by step


@dataclass(eq=False)
class Request:
    """One request in the batch or in the queue."""

    prompt_tokens: int
    max_tokens: int
    cached_tokens: int = 0
    output_tokens: int = 0

    @property
    def finished(self) -> bool:
        """Whether its answer is complete."""
        return self.output_tokens == self.max_tokens


@dataclass
class Counts:
    """Monotone counts since the start; accepted tokens are those that reached the answer."""

    steps: int = 0
    step_s: float = 0.0
    output_tokens: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    verify_steps: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)


class Batch:
    """Requests in flight, advanced one step at a time; time is for the caller to keep."""

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self.settings = settings
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counts = Counts(accepted_per_position=[0] * settings.drafted_tokens)
        self._rng = rng

    def submit(self, request: Request) -> None:
        """Queue a request for the next step that has room."""
        self.waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Drop a request wherever it is."""
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def begin_step(self) -> float:
        """Admit what fits; the step's length in seconds."""
        admitted_tokens = 0
        while self.waiting and len(self.running) < self.settings.max_running:
            request = self.waiting.popleft()
            self.running.append(request)
            admitted_tokens += request.prompt_tokens - request.cached_tokens
            self.counts.prompt_tokens += request.prompt_tokens
            self.counts.cached_prompt_tokens += request.cached_tokens
        context = sum(r.prompt_tokens + r.output_tokens for r in self.running)
        step_s = self.settings.step_ms(len(self.running), context, admitted_tokens) / 1000
        self.counts.steps += 1
        self.counts.step_s += step_s
        return step_s

    def end_step(self) -> list[tuple[Request, int]]:
        """Every request of the batch with its new tokens; finished ones leave and come first."""
        given = [(request, self._advance(request)) for request in self.running]
        self.running = [request for request in self.running if not request.finished]
        return sorted(given, key=lambda pair: not pair[0].finished)

    def _advance(self, request: Request) -> int:
        tokens = 1
        if self.settings.drafted_tokens and request.output_tokens:
            left = request.max_tokens - request.output_tokens
            tokens = min(1 + self._accepted(), left)
            self._count_verified(tokens - 1)
        request.output_tokens += tokens
        self.counts.output_tokens += tokens
        return tokens

    def _accepted(self) -> int:
        accepted = 0
        while (
            accepted < self.settings.drafted_tokens
            and self._rng.random() < self.settings.acceptance
        ):
            accepted += 1
        return accepted

    def _count_verified(self, accepted: int) -> None:
        self.counts.verify_steps += 1
        self.counts.drafted_tokens += self.settings.drafted_tokens
        self.counts.accepted_tokens += accepted
        for position in range(accepted):
            self.counts.accepted_per_position[position] += 1
