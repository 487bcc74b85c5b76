"""The noise floor: what two identical servers may differ by, from a campaign's A/A arm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from crossover.verdict import Verdict


def with_noise_floor(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Each verdict with the floor of its workload, metric and baseline, if there is an A/A arm.

    A variant whose server configuration is the baseline's is an A/A arm: whatever differs there
    is noise. The floor is the smallest difference that its comparison can rule out at every
    level (`equivalence_margin_supported`), the greatest of several such arms. A verdict whose
    smallest labelled difference is not above the floor gets the caveat `below_noise_floor`.
    """
    floors: dict[tuple[str | None, str, str], float] = {}
    for verdict in verdicts:
        supported = verdict.equivalence_margin_supported
        if verdict.same_configuration and supported is not None:
            key = _key(verdict)
            floors[key] = max(supported, floors.get(key, 0.0))
    return [_with_floor(verdict, floors.get(_key(verdict))) for verdict in verdicts]


def _key(verdict: Verdict) -> tuple[str | None, str, str]:
    return (verdict.workload, verdict.metric, verdict.baseline)


def _with_floor(verdict: Verdict, floor: float | None) -> Verdict:
    if floor is None or verdict.same_configuration:
        return verdict
    smallest = min(_claimed(verdict), default=None)
    caveats = verdict.caveats
    if smallest is not None and smallest <= floor:
        caveats += (
            {
                "code": "below_noise_floor",
                "text": f"The smallest difference claimed, {100 * smallest:.1f} %, is not above "
                f"the {100 * floor:.1f} % by which two servers of the baseline's own "
                "configuration may differ here: more trials lower that floor.",
            },
        )
    return replace(verdict, noise_floor=floor, caveats=caveats)


def _claimed(verdict: Verdict) -> Iterable[float]:
    """Relative differences of the labelled levels, as much up as down."""
    for level in verdict.levels:
        if level.label in ("+", "-"):
            larger = max(level.ratio, 1 / level.ratio if level.ratio else float("inf"))
            yield larger - 1
