"""What a reader must know about the data behind a verdict, as {code, text}."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from crossover.axis import Axis
    from crossover.stats.curve import Crossing
    from crossover.stats.drift import Drift
    from crossover.stats.model import LogRatio, Settings
    from crossover.verdict_rules import Bounds

OUTPUT_LENGTH_TOLERANCE = 0.02
"""Relative difference of the arms' mean output lengths from which it is flagged."""

UNLIKE_LEVELS = frozenset({"cap_differs", "running_differs"})
"""Why parity leaves a whole level out; its caveat says so, and the level's points may be valid."""

Caveat = dict[str, str]


def of_extent(known: Mapping[str, Any], axis: Axis) -> list[Caveat]:
    """Points and levels that are not in the comparison."""
    notes = []
    invalid = sum(not UNLIKE_LEVELS.issuperset(row["reasons"]) for row in known["bad_rows"])
    if invalid:
        noun = "point was" if invalid == 1 else "points were"
        notes.append(_note("points_left_out", f"{invalid} invalid {noun} left out."))
    if known["dropped_levels"]:
        notes.append(
            _note(
                "levels_dropped",
                f"Measured validly in one arm only, so not compared: "
                f"{axis.at(*known['dropped_levels'])}.",
            )
        )
    return notes


def of_ratio(
    ratio: LogRatio, known: Mapping[str, Any], settings: Settings, *, laws: bool
) -> list[Caveat]:
    """Too few trials, and an arm whose throughput falls with concurrency."""
    notes = []
    if ratio.n_trials == 2:
        notes.append(
            _note(
                "provisional",
                "Two trials only: the result is provisional; measure at least three.",
            )
        )
    for arm, means in (("baseline", ratio.log_baseline), ("variant", ratio.log_variant)):
        if laws and (fall := _fall(ratio, means, settings)):
            notes.append(
                _note(
                    "throughput_falls",
                    f"The throughput of {known[arm]} itself falls by {100 * fall[2]:.0f} % from "
                    f"concurrency {fall[0]} to {fall[1]}: look for preemption, a cap or a "
                    "disturbed run.",
                )
            )
    return notes


def one_level_with_values(ratio: LogRatio, axis: Axis) -> Caveat:
    """The only level that is not 0 in either arm, beside levels that are."""
    (level,) = ratio.levels.tolist()
    return _note(
        "one_level_with_values",
        f"Only at {axis.at(axis.level(level))} is neither arm's metric 0: from one level its noise "
        "cannot be told, however many trials it has; measure levels between it and those that "
        "are 0.",
    )


def _fall(ratio: LogRatio, means: np.ndarray, settings: Settings) -> tuple[int, int, float] | None:
    """(from, to, share) of the greatest fall of throughput between neighbouring levels, if real.

    A fall counts from twice the assumed variation of a difference of two runs.
    """
    if len(means) < 2 or not settings.assumed_cv:
        return None
    steps = np.diff(means)
    i = int(steps.argmin())
    if steps[i] > -2 * math.sqrt(2) * settings.assumed_cv:
        return None
    return int(ratio.levels[i]), int(ratio.levels[i + 1]), -math.expm1(steps[i])


def of_output_lengths(
    usable: Iterable[Mapping[str, Any]], known: Mapping[str, Any], axis: Axis
) -> list[Caveat]:
    """Levels at which the arms' answers are not of one length."""
    lengths = defaultdict(list)
    for point in usable:
        tokens = point.get("output_tokens_mean")
        if tokens is not None and math.isfinite(tokens):
            lengths[point["variant"], point["level"]].append(tokens)
    means = {key: float(np.mean(values)) for key, values in lengths.items()}
    notes = []
    for level in sorted({level for _, level in means}):
        theirs = means.get((known["baseline"], level))
        ours = means.get((known["variant"], level))
        if theirs and ours and abs(ours - theirs) > OUTPUT_LENGTH_TOLERANCE * theirs:
            notes.append(
                _note(
                    "output_length_differs",
                    f"At {axis.at(level)} the answers of {known['variant']} have {ours:.4g} "
                    f"tokens on average, those of {known['baseline']} {theirs:.4g}: not the same "
                    "work.",
                )
            )
    return notes


def of_drift(drift: Drift | None, margin: float) -> list[Caveat]:
    """A change over the campaign that is significant and larger than the margin."""
    if drift is None or not drift.is_significant or abs(drift.over_span) <= margin:
        return []
    return [
        _note(
            "drift",
            f"Within an arm the metric {'improved' if drift.over_span > 0 else 'worsened'} by "
            f"{100 * abs(drift.over_span):.1f} % over the {drift.span_h:.1f} h from the first start "
            f"of a server to the last ({100 * drift.per_h_lo:+.2f} to {100 * drift.per_h_hi:+.2f} % "
            "an hour): the machine was not the same throughout; look for heat, clocks or other work "
            "on it. Trials in alternating order cancel a steady drift, not one that changes its pace.",
        )
    ]


def of_crossings(
    bounds: Bounds,
    changes: Sequence[tuple[int, int]],
    crossings: Sequence[Crossing],
    axis: Axis,
) -> list[Caveat]:
    """How well a crossing is known."""
    notes = []
    for (first, last), crossing in zip(changes, crossings, strict=True):
        if crossing.coarse:
            inner = bounds.levels[first : last + 1]
            i = int(np.clip(np.searchsorted(inner, crossing.c_star), 1, len(inner) - 1))
            notes.append(_coarse(*inner[i - 1 : i + 1].tolist(), axis))
        if not np.isfinite(bounds.log_ratio[[first, last]]).all():
            notes.append(
                _note(
                    "zero_at_crossing",
                    "One arm's metric is 0 at an end of the bracket "
                    f"{' to '.join(str(axis.level(end)) for end in crossing.bracket)}: nothing says where between them the arms are equal.",
                )
            )
    inside = {i for first, last in changes for i in range(first, last + 1)}
    outside = [
        axis.level(level)
        for i, level in enumerate(bounds.levels.tolist())
        if bounds.labels[i] == "?" and i not in inside
    ]
    if changes and outside:
        notes.append(
            _note(
                "further_crossings_not_excluded",
                f"Unresolved at {axis.at(*outside)}: further crossings are not excluded there.",
            )
        )
    return notes


def _coarse(low: float, high: float, axis: Axis) -> Caveat:
    low, high = axis.level(low), axis.level(high)
    if axis.closed_loop and high - low == 1:
        text = (
            f"The crossing lies between {low} and {high}, which are neighbours: no level can be "
            "measured between them, and fractions of C* mean nothing."
        )
    else:
        text = (
            f"The crossing lies between the tested levels {low} and {high}, too far apart to "
            "interpolate: C* is provisional; measure levels in between."
        )
    return _note("coarse_crossing", text)


def _note(code: str, text: str) -> Caveat:
    return {"code": code, "text": text}
