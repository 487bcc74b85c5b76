"""How often verdicts are right in worlds where the truth is known.

    python benchmarks/verdict_truth.py [--quick]

Prints coverage of the interval of C* by family, noise and number of trials; how often a
crossover is claimed where there is none; verdicts against the true class; and what refinement
costs (`refinement_truth.py`). Exit status 1 if pooled coverage leaves 95–99 %, a family's falls
below 92 %, false crossovers exceed 5 %, or refinement needs more than 45 measurements (median).
The same seeds give the same figures. Coverage is over worlds: the error of interpolation is
fixed inside one.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "workflow" / "scripts"))

import numpy as np
from refinement_truth import CROSSOVERS, print_refinement
from truth_worlds import FAMILIES, NOISES, SHAPES, World, drawn, measured

from crossover.campaign import Analysis
from crossover.verdict import Verdict, find_verdict

CLASSES = {
    "crossover": "cross",
    "multiple_crossovers": "several",
    "variant_faster_throughout": "faster",
    "baseline_faster_throughout": "slower",
    "equivalent": "equal",
    "inconclusive": "cannot tell",
}


class Cell(NamedTuple):
    """One kind of campaign, judged many times."""

    world: str
    noise: str
    trials: int
    campaigns: int


class Crossed(NamedTuple):
    """A crossing that was found, against the true one in its bracket; None: there is none."""

    covered: bool
    log_error: float | None
    log_half_width: float
    in_hard_bracket: bool


def judge(world: World, cell: Cell, rng: np.random.Generator) -> Verdict:
    points = measured(world, NOISES[cell.noise], cell.trials, rng)
    return find_verdict(points, Analysis(), variant="variant", baseline="baseline")


def crossed(verdict: Verdict, world: World) -> list[Crossed]:
    """The found crossings; those with several true ones in the bracket say nothing of one."""
    found = []
    for crossing in verdict.crossings if verdict.verdict in CROSSOVERS else ():
        low, high = crossing.ci
        true = [c for c in world.crossovers if crossing.bracket[0] <= c <= crossing.bracket[1]]
        if len(true) > 1:
            continue
        half_width = math.log(high / low) / 2
        if not true:
            found.append(Crossed(False, None, half_width, False))
            continue
        (c_star,) = true
        found.append(
            Crossed(
                low <= c_star <= high,
                math.log(crossing.c_star / c_star),
                half_width,
                crossing.hard[0] <= c_star <= crossing.hard[1],
            )
        )
    return found


def run_family(cell: Cell) -> tuple[Cell, Counter, list[Crossed]]:
    """Verdicts by (true class, claimed class), and crossings, over drawn worlds."""
    rng = np.random.default_rng([8, *map(ord, f"{cell.world} {cell.noise} {cell.trials}")])
    classes, crossings = Counter(), []
    for _ in range(cell.campaigns):
        world = drawn(cell.world, rng)
        verdict = judge(world, cell, rng)
        several = len(world.crossovers) > 1
        classes["multiple_crossovers" if several else "crossover", verdict.verdict] += 1
        crossings += crossed(verdict, world)
    return cell, classes, crossings


def run_shape(cell: Cell) -> tuple[Cell, Counter]:
    """Verdicts by (true class, claimed class) in one world."""
    rng = np.random.default_rng([9, *map(ord, f"{cell.world} {cell.noise} {cell.trials}")])
    world, true = SHAPES[cell.world]
    claimed = Counter(judge(world, cell, rng).verdict for _ in range(cell.campaigns))
    return cell, Counter({(true, verdict): n for verdict, n in claimed.items()})


# ------------------------------------------------------------------ what is printed


def print_coverage(crossings: dict[Cell, list[Crossed]]) -> dict[str, float]:
    """A line a family and number of trials; coverage by family, and pooled under the name ''."""
    print("\ncoverage of the 95 % interval of C*")
    print(f"{'family':16}{'trials':>7}{'found':>8}{'covered':>9}{'worst noise':>24}", end="")
    print(f"{'bias':>8}{'half-width':>12}{'hard bracket':>14}")
    groups = defaultdict(list)
    for cell, found in crossings.items():
        groups[cell.world, cell.trials].append((cell.noise, found))
    for (world, trials), by_noise in sorted(groups.items()):
        found = [c for _, of_noise in by_noise for c in of_noise]
        share, noise = min((coverage(of), name) for name, of in by_noise)
        errors = [c.log_error for c in found if c.log_error is not None]
        widths = [c.log_half_width for c in found]
        hard = np.mean([c.in_hard_bracket for c in found])
        print(
            f"{world:16}{trials:7}{len(found):8}{coverage(found):9.1%}{noise:>16}{share:8.1%}"
            f"{np.mean(errors):+8.1%}{np.median(widths):12.2f}{hard:14.2%}"
        )
    of_family = defaultdict(list)
    for cell, found in crossings.items():
        for name in (cell.world, ""):
            of_family[name] += found
    return {name: coverage(found) for name, found in of_family.items()}


def coverage(found: list[Crossed]) -> float:
    return float(np.mean([c.covered for c in found]))


def print_false_crossovers(shapes: list[tuple[Cell, Counter]]) -> float:
    """The share of campaigns with a claimed crossover in worlds without one, and the worst cell."""
    rates = {}
    for cell, classes in shapes:
        if SHAPES[cell.world][1] not in CROSSOVERS:
            claimed = sum(n for (_, verdict), n in classes.items() if verdict in CROSSOVERS)
            rates[cell] = claimed / cell.campaigns
    worst = max(rates, key=rates.get)
    mean = float(np.mean(list(rates.values())))
    print(
        f"\nfalse crossovers: {mean:.2%} of campaigns in {len(rates)} cells without one; worst "
        f"{rates[worst]:.1%} ({worst.world}; {worst.noise}, {worst.trials} trials)"
    )
    return mean


def print_classes(classes: Counter) -> None:
    print("\ntrue class against verdict, share of campaigns")
    print(f"{'':14}{'campaigns':>10}" + "".join(f"{word:>13}" for word in CLASSES.values()))
    for true, word in CLASSES.items():
        total = sum(n for (of, _), n in classes.items() if of == true)
        if total:
            shares = [classes[true, verdict] / total for verdict in CLASSES]
            print(f"{word:14}{total:10}" + "".join(f"{share:13.1%}" for share in shares))


def main(quick: bool) -> int:
    """Run all cells; 0 if the figures are within their limits."""
    began = time.perf_counter()
    trials, campaigns = ((3,), 160) if quick else ((2, 3, 5), 400)
    families = [Cell(*one, campaigns) for one in product(FAMILIES, NOISES, trials)]
    shapes = [Cell(*one, campaigns // 4) for one in product(SHAPES, NOISES, trials)]
    with ProcessPoolExecutor() as pool:
        of_families = list(pool.map(run_family, families))
        of_shapes = list(pool.map(run_shape, shapes))
    of_class = sum((counts for _, counts, *_ in [*of_families, *of_shapes]), Counter())

    shares = print_coverage({cell: found for cell, _, found in of_families})
    false = print_false_crossovers(of_shapes)
    print_classes(of_class)
    with ProcessPoolExecutor() as pool:
        refined_well = print_refinement(pool, campaigns // 8)
    n = sum(of_class.values())
    print(f"\n{n} campaigns, pooled coverage {shares['']:.1%}, {time.perf_counter() - began:.0f} s")
    right = (
        refined_well
        and 0.95 <= shares[""] <= 0.99
        and min(shares.values()) >= 0.92
        and false <= 0.05
    )
    print("within the limits" if right else "outside the limits: see the module's first lines")
    return 0 if right else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer campaigns, about two minutes")
    sys.exit(main(parser.parse_args().quick))
