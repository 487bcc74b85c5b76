"""Tokens per second of the same variant in several campaigns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from crossover.compare.likeness import Likeness
from crossover.compare.results import Results
from crossover.report.figure import Table
from crossover.report.wording import MISSING, number, ratio

THROUGHPUT = "output_throughput_tokens_per_s"


class _Place(NamedTuple):
    workload: str
    variant: str
    axis: str
    level: float


def throughput_table(
    campaigns: Sequence[Results], likenesses: Mapping[str, Likeness]
) -> Table | None:
    """Means of the variants, levels and workloads that two campaigns or more have; None: of none.

    Args:
        campaigns: the first one is what the others are set against.
        likenesses: label of a later campaign → what it has in common with the first one.
    """
    means = [_means(c) for c in campaigns]
    places = sorted(p for p in set().union(*means) if sum(p in m for m in means) > 1)
    if not places:
        return None
    labels = [c.label for c in campaigns]
    head = ["Workload", "Variant", "Level", *labels]
    head += [f"{label} / {labels[0]}" for label in labels[1:]]
    return Table(
        caption=(
            "Output throughput, tokens/s: means over valid trials (how many). Without interval: "
            "the campaigns' sessions were not interleaved."
        ),
        columns=head,
        rows=[
            [
                place.workload,
                place.variant,
                f"{place.axis} {place.level:g}",
                *(_shown(of_one.get(place)) for of_one in means),
                *(
                    _quotient(place, means[0], of_one, likenesses[label])
                    for label, of_one in zip(labels[1:], means[1:], strict=True)
                ),
            ]
            for place in places
        ],
        heads=3,
        numeric=frozenset(range(3, len(head))),
    )


def _means(campaign: Results) -> dict[_Place, tuple[float, int]]:
    """Mean tokens/s of the valid trials, and how many there are."""
    axis = campaign.axis
    values: dict[_Place, list[float]] = defaultdict(list)
    for p in campaign.points_of():
        if p[THROUGHPUT] is not None:
            place = _Place(p["workload"], p["variant"], axis.words, p[axis.name])
            values[place].append(p[THROUGHPUT])
    return {place: (sum(v) / len(v), len(v)) for place, v in values.items()}


def _shown(mean: tuple[float, int] | None) -> str:
    return MISSING if mean is None else f"{number(mean[0])} ({mean[1]})"


def _quotient(
    place: _Place,
    first: Mapping[_Place, tuple[float, int]],
    later: Mapping[_Place, tuple[float, int]],
    known: Likeness,
) -> str:
    if place not in first or place not in later:
        return MISSING
    against = known.against_speedups or known.against_throughputs
    if against or place.workload in known.against_workloads:
        return "not comparable"
    return ratio(later[place][0] / first[place][0])
