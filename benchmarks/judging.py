"""How long `find_verdict` takes for all comparisons of a large campaign.

.venv/bin/python benchmarks/judging.py [VARIANTS LEVELS TRIALS]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow" / "scripts"))

import numpy as np
import pandas as pd

from crossover.campaign import Analysis
from crossover.records import POINTS, to_table
from crossover.verdict import find_verdict

GOAL_S = 10.0


def points_of(variants: int, levels: int, trials: int) -> pd.DataFrame:
    """Points of a baseline and variants that cross it at different levels, with 1 % of noise."""
    rng = np.random.default_rng(1)
    rows = (
        {
            "campaign": "large",
            "workload": "chat",
            "variant": f"v{variant}" if variant else "baseline",
            "trial": trial,
            "concurrency": 2**level,
            "session_id": f"{variant} {trial}",
            "output_throughput_tokens_per_s": 3000
            * 2**level
            / (2**level + 30)
            * np.exp(rng.normal(0, 0.01))
            * ((1.6 - 0.12 * level + variant / variants / 2) if variant else 1.0),
            "cv_within": 0.005,
            "valid": True,
        }
        for trial in range(trials)
        for variant in range(variants)
        for level in range(levels)
    )
    return to_table(rows, POINTS).to_pandas()


def main() -> int:
    variants, levels, trials = map(int, sys.argv[1:] or (200, 10, 3))
    points = points_of(variants, levels, trials)
    began = time.perf_counter()
    found = [
        find_verdict(points, Analysis(), variant=f"v{i}", baseline="baseline").verdict
        for i in range(1, variants)
    ]
    wall_s = time.perf_counter() - began
    crossing = sum("crossover" in verdict for verdict in found)
    print(
        f"find_verdict, {variants} variants x {levels} levels x {trials} trials: {wall_s:.1f} s "
        f"(goal: {GOAL_S:.0f}); {crossing} of {len(found)} cross"
    )
    return 0 if wall_s <= GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
