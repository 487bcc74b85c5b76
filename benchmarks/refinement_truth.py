"""What refinement costs and how often it is right, in worlds where the truth is known.

Part of `verdict_truth.py`. A campaign starts with two trials of the grid; rounds follow until
the interval of C* is within ±10 % (ln), or the budget of ten trials ends. The same precision on
a dense grid: every trial measures levels a factor 1.25 apart, until as narrow.
"""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np
from truth_worlds import FAMILIES, LEVELS, NOISES, SHAPES, Measurements, World, drawn

from crossover.campaign import LONGER, Analysis, Refine
from crossover.refine import MIN_TRIALS, is_narrow, next_step
from crossover.verdict import Verdict, find_verdict

CROSSOVERS = ("crossover", "multiple_crossovers")
HALF_WIDTH = 0.10
"""of the interval of C*, in ln: the target"""

FIRST_TRIALS, MOST_TRIALS = 2, 10
REFINE = Refine(rounds=MOST_TRIALS - FIRST_TRIALS, target_ratio=math.exp(2 * HALF_WIDTH))
DENSE_RATIO = 1.25
DENSE_LEVELS = sorted(
    set(
        np.geomspace(1, LEVELS[-1], round(math.log(LEVELS[-1], DENSE_RATIO)) + 1)
        .round()
        .astype(int)
    )
)


class Cell(NamedTuple):
    """One kind of campaign, refined many times."""

    world: str
    noise: str
    campaigns: int


class Refined(NamedTuple):
    """How one campaign ended."""

    verdict: str
    measurements: int
    """of both arms together"""
    reached: bool
    covered: bool | None
    """the true C* is in the interval; None: no crossing was found"""


def refine(world: World, noise: str, rng: np.random.Generator) -> Refined:
    """Measure the grid, then what each look asks for."""
    measurements = Measurements(world, NOISES[noise], FIRST_TRIALS, rng)
    for _ in range(FIRST_TRIALS):
        measurements.measure_trial()
    verdict = look(measurements, Analysis(sequential=True))
    for _ in range(REFINE.rounds):
        step = next_step(verdict, REFINE, FIRST_TRIALS)
        if not step.levels:
            break
        measurements.measure_trial(step.levels, LONGER if step.outcome == "measure_longer" else 1)
        verdict = look(measurements, Analysis(sequential=True))
    return ended(verdict, measurements, world)


def measure_densely(world: World, noise: str, rng: np.random.Generator) -> Refined:
    """Measure the dense grid, trial by trial, until it is as narrow."""
    measurements = Measurements(world, NOISES[noise], MIN_TRIALS, rng)
    for trial in range(1, MOST_TRIALS + 1):
        measurements.measure_trial(DENSE_LEVELS)
        if trial < MIN_TRIALS:
            continue
        verdict = look(measurements, Analysis(sequential=True))
        if has_reached(verdict):
            break
    return ended(verdict, measurements, world)


def look(measurements: Measurements, analysis: Analysis) -> Verdict:
    return find_verdict(measurements.points, analysis, variant="variant", baseline="baseline")


def has_reached(verdict: Verdict) -> bool:
    found = verdict.crossings if verdict.verdict in CROSSOVERS else ()
    return bool(found) and all(is_narrow(c, REFINE.target_ratio) for c in found)


def ended(verdict: Verdict, measurements: Measurements, world: World) -> Refined:
    covered = None
    if verdict.verdict in CROSSOVERS and world.crossovers:
        (true,) = world.crossovers
        nearest = min(verdict.crossings, key=lambda c: abs(math.log(c.c_star / true)))
        covered = nearest.ci[0] <= true <= nearest.ci[1]
    return Refined(verdict.verdict, len(measurements), has_reached(verdict), covered)


# ------------------------------------------------------------------ many campaigns


def refine_family(cell: Cell) -> tuple[Cell, list[Refined]]:
    """Campaigns in drawn worlds with one crossover."""
    return cell, [refine(world, cell.noise, rng) for world, rng in _worlds(cell)]


def measure_family_densely(cell: Cell) -> tuple[Cell, list[Refined]]:
    """The same worlds on the dense grid."""
    return cell, [measure_densely(world, cell.noise, rng) for world, rng in _worlds(cell)]


def refine_shape(cell: Cell) -> tuple[Cell, list[Refined]]:
    """Campaigns in a world without a crossover."""
    rng = np.random.default_rng([11, *map(ord, f"{cell.world} {cell.noise}")])
    world, _ = SHAPES[cell.world]
    return cell, [refine(world, cell.noise, rng) for _ in range(cell.campaigns)]


def _worlds(cell: Cell):
    rng = np.random.default_rng([10, *map(ord, f"{cell.world} {cell.noise}")])
    for _ in range(cell.campaigns):
        while len((world := drawn(cell.world, rng)).crossovers) > 1:
            pass
        yield world, rng


def print_refinement(pool, campaigns: int) -> bool:
    """Refine, print, and say whether the figures are within their limits."""
    families = [Cell(*one, campaigns) for one in product(FAMILIES, NOISES)]
    shapes = [
        Cell(*one, campaigns)
        for one in product(SHAPES, NOISES)
        if SHAPES[one[0]][1] not in CROSSOVERS
    ]
    refined = dict(pool.map(refine_family, families))
    densely = dict(pool.map(measure_family_densely, families))
    of_shapes = dict(pool.map(refine_shape, shapes))

    print(
        f"\nrefinement to ±{HALF_WIDTH:.0%} of C*, and a grid of ratio {DENSE_RATIO:g} to the same"
    )
    print(f"{'family':16}{'measured':>9}{'90 %':>6}{'reached':>9}{'covered':>9}", end="")
    print(f"{'worst noise':>24}{'dense grid':>12}{'reached':>9}")
    for family in FAMILIES:
        by_noise = {cell.noise: found for cell, found in refined.items() if cell.world == family}
        found = [one for of in by_noise.values() for one in of]
        share, noise = min((_coverage(of), name) for name, of in by_noise.items())
        print(
            f"{family:16}{_line(found)}{_coverage(found):9.1%}{noise:>16}{share:8.1%}"
            f"{_line([o for c, of in densely.items() if c.world == family for o in of], False)}"
        )
    everything = [one for found in refined.values() for one in found]
    dense = [one for found in densely.values() for one in found]
    median, of_dense = (
        float(np.median([o.measurements for o in of])) for of in (everything, dense)
    )
    covered = _coverage(everything)
    print(f"{'all':16}{_line(everything)}{covered:9.1%}{'':24}{_line(dense, False)}")

    claimed = {
        cell: np.mean([o.verdict in CROSSOVERS for o in of]) for cell, of in of_shapes.items()
    }
    worst = max(claimed, key=claimed.get)
    false = float(np.mean(list(claimed.values())))
    without = [one for found in of_shapes.values() for one in found]
    open_ = np.mean([one.verdict == "inconclusive" for one in without])
    print(
        f"false crossovers after up to {REFINE.rounds + 1} looks: {false:.2%} in {len(claimed)} cells "
        f"without one; worst {claimed[worst]:.1%} ({worst.world}; {worst.noise}); of these campaigns "
        f"{open_:.0%} end inconclusive"
    )
    return median <= 45 and of_dense > median and 0.95 <= covered <= 0.99 and false <= 0.05


def _line(found: list[Refined], wide: bool = True) -> str:
    counts = [one.measurements for one in found]
    reached = np.mean([one.reached for one in found])
    if not wide:
        return f"{np.median(counts):12.0f}{reached:9.1%}"
    return f"{np.median(counts):9.0f}{np.quantile(counts, 0.9):6.0f}{reached:9.1%}"


def _coverage(found: list[Refined]) -> float:
    return float(np.mean([one.covered for one in found if one.covered is not None]))
