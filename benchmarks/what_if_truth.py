"""Does the predicted crossover's interval cover the true one? On random worlds that are known.

    python benchmarks/what_if_truth.py [WORLDS]

A world is a plain server and two that differ in acceptance alone, by the step-time model of
`engines.simulated_model`, with noise between and within launches. A third acceptance, that no
server of the world has, is predicted from them and looked up in the model. Printed for each kind
of noise and number of trials: worlds with a crossover to predict, the share whose crossing was
predicted, the share of those intervals that hold the true crossover, and the bias of C*; then the
share of the levels' break-even intervals that hold the true one; then, of what each arm alone says of
the third acceptance: the share of levels whose band excludes the true ratio, the share of predictions
that give a crossover, and of its intervals that hold the true one.
Ends with exit status 1 if the pooled coverage is not within 95 to 99 %.
"""

from __future__ import annotations

import functools
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow" / "scripts"))

from crossover.engines.simulated_model import (
    Settings as Server,
)
from crossover.engines.simulated_model import (
    steps_per_request,
    true_crossovers,
    true_throughput,
)
from crossover.stats.model import Observation, Settings
from crossover.step_cost import cost_line, predict, step_costs
from crossover.what_if import judged, judged_band

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossover.step_cost import CostLine

GRIDS = {
    "coarse": (1, 2, 5, 10, 30, 70, 100, 250),
    "fine": (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 79, 100, 126, 158, 199, 250),
}
"""Levels; between those of the fine one the ratio is interpolated, between the others bounded."""

HIGHEST = 250
WORLDS = 400
TARGET = (0.95, 0.99)


@dataclass(frozen=True)
class Noise:
    """Standard deviations, in ln of throughput."""

    name: str
    launch: float
    level: float
    accepted: float
    """of the acceptance of a point around the server's, which moves throughput and A together"""
    heavy: bool = False
    """Student's t with 4 degrees of freedom instead of a normal"""

    def draw(self, rng: np.random.Generator, sd: float) -> float:
        """One deviation."""
        return sd * (rng.standard_t(4) / math.sqrt(2) if self.heavy else rng.standard_normal())


NOISES = (
    Noise("quiet", launch=0.003, level=0.003, accepted=0.002),
    Noise("usual", launch=0.01, level=0.008, accepted=0.01),
    Noise("loud", launch=0.02, level=0.015, accepted=0.02),
    Noise("heavy tails", launch=0.01, level=0.01, accepted=0.01, heavy=True),
)


@dataclass(frozen=True)
class World:
    """Servers and lengths; `asked` is the acceptance that is predicted."""

    plain: Server
    arms: tuple[Server, Server]
    asked: Server
    output_tokens: int
    prompt_tokens: float
    crossover: float

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> World:
        """One with exactly one crossover of the asked acceptance between the levels."""
        while True:
            plain = Server(
                memory_ms=rng.uniform(4, 20),
                kv_ms_per_token=rng.uniform(0, 0.0004),
                compute_ms_per_token=10 ** rng.uniform(-1.5, -0.3),
                knee=rng.uniform(2, 8),
                overhead_ms=rng.uniform(0.5, 6),
                prefill_ms_per_token=10 ** rng.uniform(-2.5, -1),
                max_running=1000,
            )
            drafting = replace(
                plain,
                drafted_tokens=int(rng.integers(2, 6)),
                draft_ms=rng.uniform(0.2, 1.5),
                verify_ms=rng.uniform(0, 2),
            )
            low, high = rng.uniform(0.3, 0.55), rng.uniform(0.65, 0.9)
            asked = replace(drafting, acceptance=rng.uniform(low - 0.1, min(high + 0.05, 0.95)))
            lengths = int(rng.integers(32, 512)), float(rng.integers(16, 1024))
            crossings = true_crossovers(plain, asked, *lengths, highest=HIGHEST)
            if len(crossings) == 1 and 1 < crossings[0] < HIGHEST:
                arms = (replace(drafting, acceptance=low), replace(drafting, acceptance=high))
                return cls(plain, arms, asked, *lengths, crossings[0])

    def tokens_per_step(self, server: Server) -> float:
        """A of the model."""
        return self.output_tokens / steps_per_request(server, self.output_tokens)

    def throughput(self, server: Server, level: int) -> float:
        """Of the model, tokens/s."""
        return true_throughput(server, level, self.output_tokens, self.prompt_tokens)


def measured(
    world: World,
    server: Server,
    levels: Sequence[int],
    trials: int,
    noise: Noise,
    rng: np.random.Generator,
) -> tuple[list[Observation], dict[int, float]]:
    """Points of one arm, and its tokens per step by level."""
    observations, tokens = [], {level: [] for level in levels}
    true_tokens = math.log(world.tokens_per_step(server))
    for trial in range(trials):
        launch = noise.draw(rng, noise.launch)
        for level in levels:
            luck = noise.draw(rng, noise.accepted) if server.drafted_tokens else 0.0
            value = math.log(world.throughput(server, level)) + luck
            value += launch + noise.draw(rng, noise.level)
            tokens[level].append(true_tokens + luck)
            observations.append(Observation(level, trial, trial, trial, value))
    return observations, {level: math.exp(np.mean(logs)) for level, logs in tokens.items()}


@dataclass(frozen=True)
class Outcome:
    """What came of one world."""

    predicted: bool
    covered: bool = False
    bias: float = 0.0
    """ln of predicted C* / true crossover"""
    even_covered: int = 0
    """levels whose break-even interval holds the true one"""
    even_known: int = 0
    band_broken: int = 0
    """levels at which one arm's band excludes the true ratio"""
    banded: int = 0
    """levels"""
    alone_covered: int = 0
    """intervals of the crossover from one arm that hold the true one"""
    alone_found: int = 0
    alone: int = 0
    """predictions from one arm"""


def outcome(seed: int, levels: Sequence[int], trials: int, noise: Noise) -> Outcome:
    """Predict the crossover of one world from what was measured in it."""
    rng = np.random.default_rng(seed)
    world = World.drawn(rng)
    settings = Settings()
    plain, _ = measured(world, world.plain, levels, trials, noise, rng)
    arms, tokens = zip(
        *(measured(world, arm, levels, trials, noise, rng) for arm in world.arms), strict=True
    )
    line = cost_line(plain, arms, tokens, settings)
    asked = world.tokens_per_step(world.asked)
    even = _break_even(world, line, settings.confidence)
    band = np.sum(
        [
            _from_one_arm(world, cost_line(plain, [arm], [tokens_of_arm], settings), settings)
            for arm, tokens_of_arm in zip(arms, tokens, strict=True)
        ],
        axis=0,
    ).tolist()
    ratio = predict(line, asked)
    crossings = [] if ratio is None else judged(ratio, ratio, ratio, settings)[1]
    if len(crossings) != 1:
        return Outcome(False, False, 0.0, *even, *band)
    low, high = crossings[0].ci
    bias = math.log(crossings[0].c_star / world.crossover)
    return Outcome(True, low <= world.crossover <= high, bias, *even, *band)


def _break_even(world: World, line: CostLine, confidence: float) -> tuple[int, int]:
    """(covered, known) of the levels' intervals of the break-even acceptance."""
    covered = known = 0
    for level in step_costs(line, confidence, world.output_tokens):
        if level.break_even_lo is None:
            continue
        costs, tokens = [], []
        for arm in world.arms:
            tokens.append(world.tokens_per_step(arm))
            ratio = world.throughput(arm, level.concurrency) / world.throughput(
                world.plain, level.concurrency
            )
            costs.append(tokens[-1] / ratio)
        slope = (costs[1] - costs[0]) / (tokens[1] - tokens[0])
        true = (costs[0] - slope * tokens[0]) / (1 - slope)
        known += 1
        covered += level.break_even_lo <= true <= level.break_even_hi
    return covered, known


def _from_one_arm(
    world: World, line: CostLine, settings: Settings
) -> tuple[int, int, int, int, int]:
    """The last five fields of an Outcome; all 0 where the asked acceptance is the measured one."""
    asked = world.tokens_per_step(world.asked)
    if line.tokens_per_step.min() <= asked <= line.tokens_per_step.max():
        return 0, 0, 0, 0, 0
    _, levels, crossings, _ = judged_band(line, asked, settings)
    ratios = [
        world.throughput(world.asked, at.concurrency)
        / world.throughput(world.plain, at.concurrency)
        for at in levels
    ]
    broken = sum(not at.lo <= ratio <= at.hi for at, ratio in zip(levels, ratios, strict=True))
    covered = sum(c.ci[0] <= world.crossover <= c.ci[1] for c in crossings)
    return broken, len(levels), covered, len(crossings), 1


def main(worlds: int) -> int:
    """Print the table; the exit status."""
    everything: list[Outcome] = []
    print(
        "levels  noise        trials  worlds  predicted   covered    bias  break-even covered  "
        "one arm: band broken  predicted  covered"
    )
    with ProcessPoolExecutor() as pool:
        for grid, levels in GRIDS.items():
            of_grid: list[Outcome] = []
            for i, noise in enumerate(NOISES):
                for trials in (2, 3, 5):
                    seeds = [worlds * (10 * i + trials) + n for n in range(worlds)]
                    run = functools.partial(outcome, levels=levels, trials=trials, noise=noise)
                    found = list(pool.map(run, seeds, chunksize=10))
                    of_grid += found
                    print(f"{grid:<7} {noise.name:<12} {trials:>6}  {_line(found)}", flush=True)
            print(f"{grid:<7} {'all':<12} {'':>6}  {_line(of_grid)}", flush=True)
            everything += of_grid
    coverage = _coverage(everything)
    n = sum(o.predicted for o in everything)
    print(f"pooled coverage {100 * coverage:.1f} % of {n} intervals, wanted 95 to 99 %")
    return 0 if TARGET[0] <= coverage <= TARGET[1] else 1


def _coverage(found: Sequence[Outcome]) -> float:
    predicted = [o for o in found if o.predicted]
    return sum(o.covered for o in predicted) / len(predicted)


def _line(found: Sequence[Outcome]) -> str:
    predicted = [o for o in found if o.predicted]
    bias = math.expm1(float(np.median([o.bias for o in predicted])))
    even = sum(o.even_covered for o in found) / sum(o.even_known for o in found)
    broken = sum(o.band_broken for o in found) / sum(o.banded for o in found)
    alone_found = sum(o.alone_found for o in found)
    alone = alone_found / sum(o.alone for o in found)
    alone_covered = sum(o.alone_covered for o in found) / alone_found
    return (
        f"{len(found):>6}  {100 * len(predicted) / len(found):>7.1f} %  "
        f"{100 * _coverage(found):>5.1f} %  {100 * bias:>+4.1f} %  "
        f"{100 * even:>16.1f} %  {100 * broken:>18.2f} %  {100 * alone:>7.1f} %  "
        f"{100 * alone_covered:>5.1f} %"
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else WORLDS))
