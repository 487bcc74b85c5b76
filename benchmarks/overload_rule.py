"""How often the rule for `overloaded` refuses a window, by how busy the server is.

    .venv/bin/python benchmarks/overload_rule.py [WINDOWS]

Poisson arrivals at servers that work on so many requests at once, each for an exponential time of
2 s on average, first come, first served; a window of a minute after a warm-up of a minute.
"""

from __future__ import annotations

import heapq
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow" / "scripts"))

import numpy as np

from crossover import metrics
from crossover.measured import backlog_growth
from crossover.validity import MOST_BACKLOG_GROWTH

SERVICE_S, WARMUP_S, WINDOW_S = 2.0, 60.0, 60.0
SLOTS = (4, 16, 64)
LOADS = (0.5, 0.9, 1.1, 1.3)


def requests(slots: int, load: float, rng: np.random.Generator) -> list[dict[str, Any]]:
    """When each request was due and when it ended; warm-up and window alone have arrivals."""
    rate = load * slots / SERVICE_S
    due_s = np.cumsum(rng.exponential(1 / rate, int(2 * rate * (WARMUP_S + WINDOW_S)) + 50))
    free_s = [0.0] * slots
    rows = []
    for due in due_s[due_s < WARMUP_S + WINDOW_S]:
        end = max(due, heapq.heappop(free_s)) + rng.exponential(SERVICE_S)
        heapq.heappush(free_s, end)
        rows.append({"scheduled_s": due, "end_s": end})
    return rows


def refused(slots: int, load: float, rng: np.random.Generator) -> bool:
    """Whether a window is refused."""
    rows = requests(slots, load, rng)
    start_s, end_s = WARMUP_S, WARMUP_S + WINDOW_S
    spans = [(row["scheduled_s"], row["end_s"]) for row in rows]
    in_flight = metrics.achieved_concurrency(spans, start_s, end_s)
    return backlog_growth(rows, in_flight, start_s, end_s) > MOST_BACKLOG_GROWTH


def main() -> None:
    windows = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rng = np.random.default_rng(1)
    print(f"windows of a minute refused as overloaded, of {windows} each:")
    for load in LOADS:
        shares = [sum(refused(n, load, rng) for _ in range(windows)) / windows for n in SLOTS]
        told = ", ".join(f"{share:.1%} ({n})" for share, n in zip(shares, SLOTS, strict=True))
        print(f"at {load:.0%} of the capacity: {told}")
    print("in brackets: requests that the server works on at once")


if __name__ == "__main__":
    main()
