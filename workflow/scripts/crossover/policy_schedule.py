"""The policy as a setting of the engine, where one engine can change its drafting with the load."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from crossover import engines
from crossover.axis import whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from crossover.campaign import Variant
    from crossover.verdict import Verdict


def in_own_terms(
    best: Mapping[float, str], verdicts: Iterable[Verdict], variants: Mapping[str, Variant]
) -> dict[str, Any] | None:
    """{engine, settings}: the choice at each level as the engine's own switch takes it.

    Args:
        best: level → variant to run, ascending.
        verdicts: where a crossing against the baseline says how far beyond its level a variant
            goes; else it ends with the last level at which it is best.
        variants: of the campaign.

    Returns:
        None if the choice is one variant throughout, the variants are of several engines or
        methods, their drafted tokens are not known, or the engine has no such switch.
    """
    names = set(best.values())
    if len(names) < 2 or not names <= set(variants):
        return None
    used = [variants[name] for name in names]
    methods = {v.speculation.method for v in used if v.speculation}
    if len({v.engine for v in used}) > 1 or len(methods) != 1:
        return None  # no one switch stands for them
    name = used[0].engine
    if name not in engines.ENGINES:
        return None
    engine = engines.get(name)
    drafted = {v.name: engine.drafted_tokens(v) if v.speculation else 0 for v in used}
    if None in drafted.values():
        return None
    ranges = [(start, end, drafted[v]) for start, end, v in _ranges(best, verdicts)]
    settings = engine.policy_in_own_terms(ranges)
    return settings and {"engine": name, "settings": settings}


def _ranges(
    best: Mapping[float, str], verdicts: Iterable[Verdict]
) -> Iterable[tuple[int, int, str]]:
    """(first, last, variant) from concurrency 1 to the highest level, without gaps."""
    start = 1
    levels = list(best)
    for low, high in itertools.pairwise(levels):
        if best[low] != best[high]:
            c_star = _between(low, high, {best[low], best[high]}, verdicts)
            end = min(max(whole(c_star), low), high - 1)
            yield start, end, best[low]
            start = end + 1
    yield start, levels[-1], best[levels[-1]]


def _between(low: float, high: float, arms: set[str], verdicts: Iterable[Verdict]) -> float:
    """Where two arms cross between neighbouring levels; the lower one if no verdict says."""
    for verdict in verdicts:
        for crossing in verdict.crossings:
            first, last = crossing.bracket
            if {verdict.variant, verdict.baseline} == arms and first <= low and high <= last:
                return crossing.c_star
    return low
