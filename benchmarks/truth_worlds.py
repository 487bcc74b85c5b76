"""Worlds of known truth, and campaigns measured in them with the noise of real servers.

A world gives ln(variant / baseline) and ln of the baseline's throughput at any concurrency, so
its crossovers are known. Four families have crossovers; the shapes have none, one
or two by construction.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from crossover.engines.simulated_model import Settings, true_throughput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LEVELS = (1, 2, 5, 10, 30, 70, 100, 250)
SESSION_H = 0.5
"""Hours from one start of a server to the next."""


@dataclass(frozen=True)
class World:
    """Two arms without noise, as functions of the concurrency."""

    log_baseline: Callable[[float], float]
    log_variant: Callable[[float], float]

    def log_ratio(self, concurrency: float) -> float:
        """ln(variant / baseline)."""
        return self.log_variant(concurrency) - self.log_baseline(concurrency)

    @functools.cached_property
    def crossovers(self) -> list[float]:
        """All concurrencies between the first and the last level where the arms are equal."""
        grid = np.geomspace(LEVELS[0], LEVELS[-1], 160)
        ratio = [self.log_ratio(c) for c in grid]
        return [
            brentq(self.log_ratio, grid[i], grid[i + 1])
            for i in range(len(grid) - 1)
            if ratio[i] * ratio[i + 1] < 0
        ]


# ------------------------------------------------------------------ families with crossovers


def _uniform_in_log(rng: np.random.Generator, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _simulated(
    baseline: Settings, variant: Settings, output_tokens: int, prompt_tokens: float
) -> World:
    """Both arms by the simulated engine's model of a step."""

    def log_throughput(settings: Settings) -> Callable[[float], float]:
        return lambda c: math.log(true_throughput(settings, c, output_tokens, prompt_tokens))

    return World(log_throughput(baseline), log_throughput(variant))


def dense(rng: np.random.Generator) -> World:
    """A dense model: memory-bound at low load, compute-bound at high load, any knee."""
    baseline = Settings(
        memory_ms=6.0,
        kv_ms_per_token=rng.uniform(1e-5, 1.5e-4),
        compute_ms_per_token=_uniform_in_log(rng, 0.012, 0.5),
        knee=float(rng.choice([2, 4, 16])),
        overhead_ms=rng.uniform(0.5, 3),
        prefill_ms_per_token=rng.uniform(0, 0.01),
        max_running=100_000,
    )
    variant = replace(
        baseline,
        drafted_tokens=int(rng.choice([2, 3, 5])),
        acceptance=rng.uniform(0.5, 0.82),
        draft_ms=rng.uniform(0.2, 0.8),
        verify_ms=rng.uniform(0.1, 0.6),
    )
    return _simulated(baseline, variant, int(rng.integers(100, 400)), rng.uniform(50, 500))


def admission_cap(rng: np.random.Generator) -> World:
    """The speculating server admits fewer requests than the other: a hard knee."""
    baseline = Settings(
        memory_ms=6.0,
        kv_ms_per_token=rng.uniform(1e-5, 1.2e-4),
        compute_ms_per_token=rng.uniform(0.01, 0.05),
        overhead_ms=1.0,
        prefill_ms_per_token=0.0,
    )
    cap = round(_uniform_in_log(rng, 8, 160))
    variant = replace(
        baseline,
        drafted_tokens=int(rng.choice([2, 3, 5])),
        acceptance=rng.uniform(0.55, 0.8),
        max_running=cap,
    )
    baseline = replace(baseline, max_running=round(cap * rng.uniform(2, 6)))
    return _simulated(baseline, variant, int(rng.integers(100, 400)), rng.uniform(50, 400))


def sparse_moe(rng: np.random.Generator) -> World:
    """A sparse mixture of experts: a batch reads the more experts the more tokens it holds.

    Each token reads a share of the experts, so a verifying step reads more of the weights than
    a plain one until all are read anyway: speculation may lose, win and lose again.
    """
    memory_ms, read = rng.uniform(6, 14), rng.uniform(0.03, 0.13)
    experts, compute_ms = rng.uniform(0.7, 0.92), _uniform_in_log(rng, 0.01, 0.08)
    overhead_ms, knee = rng.uniform(0.5, 2), float(rng.choice([2, 4, 16]))
    k, a = int(rng.choice([2, 3, 5])), rng.uniform(0.45, 0.75)
    cost_ms = k * rng.uniform(0.2, 0.7) + rng.uniform(0.5, 2.5)

    def log_throughput(tokens: int, per_step: float, extra_ms: float) -> Callable[[float], float]:
        def at(c: float) -> float:
            weights = memory_ms * (1 - experts * (1 - read) ** (c * tokens))
            compute = compute_ms * c * tokens
            step_ms = (weights**knee + compute**knee) ** (1 / knee) + overhead_ms + extra_ms
            return math.log(1000 * c * per_step / step_ms)

        return at

    accepted = (1 - a ** (k + 1)) / (1 - a)
    return World(log_throughput(1, 1.0, 0.0), log_throughput(k + 1, accepted, cost_ms))


def sharp_knee(rng: np.random.Generator) -> World:
    """Both arms proportional to C up to a sharp plateau; a small gain below it."""
    p, gain, drop = (
        float(rng.choice([3, 8, 40])),
        rng.uniform(0.02, 0.3),
        rng.uniform(0.2, 0.8),
    )
    plateau = 100 * math.exp(gain) * _uniform_in_log(rng, 2.5, 100)

    def log_throughput(slope: float, top: float) -> Callable[[float], float]:
        return lambda c: -math.log((c * slope) ** -p + top**-p) / p

    return World(
        log_throughput(100, plateau * math.exp(drop)),
        log_throughput(100 * math.exp(gain), plateau),
    )


FAMILIES = {f.__name__: f for f in (dense, admission_cap, sparse_moe, sharp_knee)}


def drawn(family: str, rng: np.random.Generator) -> World:
    """A world of a family with a crossover well within the levels."""
    while True:
        world = FAMILIES[family](rng)
        if world.crossovers and min(world.crossovers) >= 1.3 and max(world.crossovers) <= 220:
            return world


# ------------------------------------------------------------------ shapes


def _shape(concurrencies: list[float], log_ratios: list[float]) -> World:
    """A ratio that is piecewise linear in ln C."""
    x = np.log(concurrencies)

    def log_baseline(c: float) -> float:
        return math.log(100) + 0.7 * math.log(c)

    return World(
        log_baseline, lambda c: log_baseline(c) + float(np.interp(math.log(c), x, log_ratios))
    )


SHAPES = {
    # name: (world, the class that is true of it at a margin of 2 %)
    "equal": (_shape([1, 250], [0, 0]), "equivalent"),
    "+1 %": (_shape([1, 250], [0.01, 0.01]), "equivalent"),
    "-5 %": (_shape([1, 250], [-0.05, -0.05]), "baseline_faster_throughout"),
    "equal, then -40 %": (_shape([10, 100], [0, -0.5]), "baseline_faster_throughout"),
    "-0.5 % to -40 %": (_shape([2, 100], [-0.005, -0.5]), "baseline_faster_throughout"),
    "-3 % to -55 %": (_shape([2, 100], [-0.03, -0.8]), "baseline_faster_throughout"),
    "+80 % to equal": (_shape([10, 70], [0.6, 0]), "variant_faster_throughout"),
    "+80 % to +3 %": (_shape([10, 70], [0.6, 0.03]), "variant_faster_throughout"),
    "+80 % to +16 %": (_shape([10, 70], [0.6, 0.15]), "variant_faster_throughout"),
    "+80 % to -18 %": (_shape([10, 100], [0.6, -0.2]), "crossover"),
    "+5 % to -5 %": (_shape([10, 70], [0.05, -0.05]), "crossover"),
    "-14, +22, -26 %": (
        _shape([1, 2, 10, 30, 100, 250], [-0.15, -0.1, 0.2, 0.2, -0.1, -0.3]),
        "multiple_crossovers",
    ),
}


# ------------------------------------------------------------------ measuring


@dataclass(frozen=True)
class Noise:
    """Standard deviations in ln of the throughput, of one measurement and of what it shares."""

    launch: float
    """of a start of a server, shared by its levels"""
    cell: float
    """of a level in a launch"""
    within: float = 0.01
    """of a window, which the point's own cv_within shows"""
    autocorrelation: float = 0.0
    """of neighbouring measurements in a launch"""
    dof: float | None = None
    """heavy tails: Student t instead of normal, scaled to `cell`"""
    uneven: float = 0.0
    """standard deviation of ln of a level's own scale of `cell`"""
    drift: float = 0.0
    """change over the whole campaign, steady in time"""


NOISES = {
    "quiet": Noise(launch=0.003, cell=0.003, within=0.004),
    "launch": Noise(launch=0.010, cell=0.005),
    "heavy tails": Noise(launch=0.005, cell=0.010, dof=4),
    "autocorrelated": Noise(launch=0.005, cell=0.008, autocorrelation=0.7),
    "uneven": Noise(launch=0.004, cell=0.006, uneven=0.8),
    "drift": Noise(launch=0.005, cell=0.005, drift=0.05),
}


class Measurements:
    """The points of a campaign, measured trial by trial in the campaign's own kind of order."""

    def __init__(self, world: World, noise: Noise, trials: int, rng: np.random.Generator) -> None:
        """`trials`: over which the drift is spread."""
        self._truth = {"baseline": world.log_baseline, "variant": world.log_variant}
        self._noise, self._rng = noise, rng
        self._drift = noise.drift / (len(self._truth) * trials)
        self._scale: dict[tuple[str, float], float] = {}
        self._order = list(self._truth)
        self._rows: list[dict[str, Any]] = []
        self._sessions = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def points(self) -> pd.DataFrame:
        """All points so far."""
        return pd.DataFrame(self._rows)

    def measure_trial(self, levels: Sequence[int] = LEVELS, windows: int = 1) -> None:
        """One more session of both arms, its windows so many times as long as `Noise.within` tells."""
        trial, again = divmod(self._sessions, len(self._order))
        assert again == 0
        turned = self._order[::-1]
        self._order = turned if trial % 2 else list(self._rng.permutation(sorted(self._truth)))
        for arm in self._order:
            self._measure_session(arm, trial + 1, levels, self._noise.within / math.sqrt(windows))

    def _measure_session(
        self, arm: str, trial: int, levels: Sequence[int], within_window: float
    ) -> None:
        noise, rng, session = self._noise, self._rng, self._sessions
        self._sessions += 1
        launch = rng.normal(0, noise.launch) + self._drift * session
        cells = _series(noise, len(levels), rng)[rng.permutation(len(levels))]
        for level, cell in zip(levels, cells, strict=True):
            scale = self._scale.setdefault((arm, level), math.exp(rng.normal(0, noise.uneven)))
            within = rng.normal(0, within_window)
            self._rows.append(
                {
                    "variant": arm,
                    "trial": trial,
                    "concurrency": level,
                    "session_id": f"{session:03d}",
                    "session_started_at": session * SESSION_H * 3600,
                    "output_throughput_tokens_per_s": math.exp(
                        self._truth[arm](level) + launch + scale * cell + within
                    ),
                    "cv_within": within_window * math.sqrt(rng.chisquare(19) / 19),
                }
            )


def measured(world: World, noise: Noise, trials: int, rng: np.random.Generator) -> pd.DataFrame:
    """Points of a campaign on the grid."""
    measurements = Measurements(world, noise, trials, rng)
    for _ in range(trials):
        measurements.measure_trial()
    return measurements.points


def _series(noise: Noise, n: int, rng: np.random.Generator) -> np.ndarray:
    """The cells of one launch in the order of measuring."""
    if noise.dof is None:
        shocks = rng.normal(0, 1, n)
    else:
        shocks = rng.standard_t(noise.dof, n) / math.sqrt(noise.dof / (noise.dof - 2))
    rho = noise.autocorrelation
    series = [shocks[0]]
    for shock in shocks[1:]:
        series.append(rho * series[-1] + math.sqrt(1 - rho**2) * shock)
    return noise.cell * np.array(series)
