"""What the next round of refinement measures, and when there is none (docs/refinement.md).

A crossing is narrowed by levels at C* and halfway, on a log scale, to the ends of its interval;
a verdict without one is sought by measuring its unresolved levels again, in longer windows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from crossover.axis import whole
from crossover.reasons import words
from crossover.rounds import Round, Step, trial_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from crossover.campaign import Campaign, Refine
    from crossover.stats.curve import Crossing
    from crossover.verdict_record import Level, Verdict

MIN_TRIALS = 3
"""Nothing is settled on fewer."""

SNAP = 0.03
"""A level this near, in ln C, to a measured one is that one."""

HOPELESS = 4
"""Times the trials that there may be: a level that needs more is not worth asking."""


def plan_round(
    number: int, verdicts: Iterable[Verdict], campaign: Campaign, earlier: Sequence[Round]
) -> Round:
    """What round `number` measures: the levels that any comparison needs, of both its arms.

    Args:
        number: from 1.
        verdicts: of every comparison on the campaign's own metric, on all points before.
        campaign: with its `refine`.
        earlier: the rounds before.
    """
    steps = tuple(next_step(v, campaign.refine, campaign.load.trials) for v in verdicts)
    wanted = sorted({point for step in steps for point in step.points})
    points = tuple({point[:3]: point for point in wanted}.values())  # the long window comes last
    spent = sum(len(one.points) for one in earlier)
    if not points:
        return Round(number, steps, (), "done")
    if spent + len(points) > campaign.refine.max_points:
        return Round(number, steps, (), "max_points")
    return Round(number, steps, points)


def next_step(verdict: Verdict, refine: Refine, trials: int) -> Step:
    """What one comparison needs next.

    Args:
        verdict: on all points so far.
        refine: the target, and the rounds there may be.
        trials: those of the campaign before any round.
    """
    if verdict.verdict == "not_comparable":
        outcome = "not_comparable", (), "; ".join(map(words, verdict.reasons))
    elif verdict.same_configuration:
        outcome = "decided", (), "both arms are one configuration, for the noise floor"
    elif verdict.verdict in ("crossover", "multiple_crossovers"):
        outcome = _toward_crossings(verdict, refine.target_ratio)
    else:
        outcome = _toward_a_verdict(verdict, HOPELESS * (trials + refine.rounds))
    return Step(verdict.variant, verdict.baseline, verdict.workload, *outcome)


Outcome = tuple[str, tuple[int, ...], str]
"""The last three fields of a Step."""


# ------------------------------------------------------------------ toward crossings


def is_narrow(crossing: Crossing, target_ratio: float) -> bool:
    """Whether the interval is as narrow as asked for, or holds one whole concurrency.

    So it does between neighbours: up to the lower one, whatever fraction C* has.
    """
    (low, high), (first, last) = crossing.ci, crossing.bracket
    return high / low <= target_ratio or whole(low) == whole(high) or last - first <= 1


def _toward_crossings(verdict: Verdict, target_ratio: float) -> Outcome:
    wide = [c for c in verdict.crossings if not is_narrow(c, target_ratio)]
    said = "; ".join(_interval(c) for c in wide or verdict.crossings)
    levels = {level for crossing in wide for level in _around(crossing, verdict.levels)}
    if levels:
        return "measure", tuple(sorted(levels)), f"{said}; the target is {target_ratio:g}-fold"
    if wide:
        return "hopeless", (), f"{said}; every level within was measured, and is 0 at times"
    if verdict.n_trials < MIN_TRIALS:
        known = {c for one in verdict.crossings for c in (*one.bracket, round(one.c_star))}
        return "measure", tuple(sorted(map(int, known))), f"{said}; {_too_few(verdict)}"
    return "target", (), said


def _around(crossing: Crossing, levels: Sequence[Level]) -> set[int]:
    """C* and the middles between it and the ends of its interval, one of them measured before.

    Every trial shares a level with earlier ones: else what its starts differ by would be taken
    for a difference of levels. Empty if no level would narrow the interval.
    """
    (low, high), star = crossing.ci, crossing.c_star
    first, last = map(int, crossing.bracket)
    middles = (math.sqrt(low * star), star, math.sqrt(star * high))
    of_ends = [level for level in levels if level.concurrency in crossing.bracket]
    if len(_with_values(of_ends)) == 2:
        found = set(_near_measured(middles, crossing, levels))
    else:
        found = _within_bracket(middles, crossing, levels)
    linked = found & {int(level.concurrency) for level in levels}
    return found if linked or not found else found | {first, last}


def _near_measured(
    middles: Iterable[float], crossing: Crossing, levels: Sequence[Level]
) -> Iterator[int]:
    first, last = map(int, crossing.bracket)
    for middle in middles:
        at = min(max(round(middle), first), last)
        near = _nearest(at, [int(level.concurrency) for level in levels])
        yield near if abs(math.log(near / at)) <= SNAP else at


def _within_bracket(
    middles: Iterable[float], crossing: Crossing, levels: Sequence[Level]
) -> set[int]:
    """Beside a zero: levels that are new, since trials of known ones leave the bracket as it is,
    but for one with values that is not resolved yet.
    """
    first, last = map(int, crossing.bracket)
    new = sorted(set(range(first + 1, last)) - {level.concurrency for level in levels})
    inside = [level for level in levels if first < level.concurrency < last]
    unresolved = {int(level.concurrency) for level in _with_values(inside)}
    return unresolved | ({_nearest(middle, new) for middle in middles} if new else set())


def _nearest(place: float, levels: Iterable[int]) -> int:
    return min(levels, key=lambda level: abs(math.log(level / place)))


def _with_values(levels: Iterable[Level]) -> list[Level]:
    """Those at which no arm's metric was 0 in any trial."""
    return [level for level in levels if 0 < level.ratio < math.inf]


def _interval(crossing: Crossing) -> str:
    low, high = crossing.ci
    return f"C* {crossing.c_star:.4g}, interval {low:.4g} to {high:.4g}, {high / low:.3g}-fold"


# ------------------------------------------------------------------ toward a verdict


def _toward_a_verdict(verdict: Verdict, most_trials: int) -> Outcome:
    levels = verdict.levels
    everything = tuple(int(level.concurrency) for level in levels)
    if len(levels) < 2:
        return "hopeless", (), "a verdict needs two levels with valid points of both arms"
    if any(level.label is None for level in levels):
        return "measure", everything, "nothing was repeated"
    if len(_with_values(levels)) == 1:
        return _beside_one_with_values(levels)
    if verdict.verdict != "inconclusive":
        if verdict.n_trials < MIN_TRIALS:
            return "measure", everything, f"{verdict.verdict}, {_too_few(verdict)}"
        return "decided", (), verdict.verdict
    is_open = [level.label == "?" for level in levels]
    unresolved = [level for level, open_ in zip(levels, is_open, strict=True) if open_] or levels
    said = "unresolved at " + ", ".join(str(int(level.concurrency)) for level in unresolved)
    too_short = {need["concurrency"] for need in verdict.needed if need["window_cv"] is not None}
    if all(
        level.concurrency not in too_short and _trials_needed(level, verdict.margin) > most_trials
        for level in unresolved
    ):
        return "hopeless", (), f"{said}: each would need more than {most_trials} trials"
    beside = [any(is_open[max(i - 1, 0) : i + 2]) for i in range(len(levels))]
    again = tuple(at for at, near in zip(everything, beside, strict=True) if near) or everything
    return "measure_longer", again, said


def _beside_one_with_values(levels: Sequence[Level]) -> Outcome:
    """The noise of a level that stands alone among zeros is told by another with values."""
    (known,) = (int(level.concurrency) for level in _with_values(levels))
    measured = [int(level.concurrency) for level in levels]
    at = measured.index(known)
    middles = {round(math.sqrt(known * beside)) for beside in measured[max(at - 1, 0) : at + 2]}
    said = f"only at {known} is no arm's metric 0, and one level does not tell its noise"
    if new := middles - set(measured):
        return "measure", tuple(sorted({known, *new})), said
    return "hopeless", (), f"{said}; no level lies between it and the zeros"


def _trials_needed(level: Level, margin: float) -> float:
    """Trials until the level has a sign, or is known to lie within the margin: R·(t·se/distance)²."""
    if not (math.isfinite(level.ratio) and level.ratio > 0 and math.isfinite(level.hi)):
        return math.inf
    done = min(level.baseline_trials, level.variant_trials)
    r = math.log(level.ratio)
    to_sign = (math.log(level.hi) - r) / max(abs(r), 1e-9)
    to_margin = (math.log(level.pointwise_hi) - r) / max(math.log1p(margin) - abs(r), 1e-9)
    return done * min(to_sign, to_margin) ** 2


def _too_few(verdict: Verdict) -> str:
    return f"but on {verdict.n_trials} trials, and {MIN_TRIALS} are the least"


# ------------------------------------------------------------------ what came of it


def outcome_of(verdict: Verdict, campaign: Campaign, planned: Sequence[Round]) -> dict[str, Any]:
    """What refinement did for a comparison and why it ended, for verdicts.json.

    Returns:
        rounds: those that measured something for it; points: how many points they measured;
        ended: target, decided, hopeless, not_comparable; or rounds, max_points: the budget ended
        before; or settings: it had ended, but is not settled as the analysis is set now; text.
    """
    pair = (verdict.variant, verdict.baseline, verdict.workload)
    own = [
        step
        for one in planned
        for step in one.steps
        if (step.variant, step.baseline, step.workload) == pair and not one.stopped and step.levels
    ]
    points = sum(len(step.points) for step in own)
    step = next_step(verdict, campaign.refine, campaign.load.trials)
    ended, why = step.outcome, step.why
    if step.levels:
        stopped = planned[-1].stopped if planned else None
        ended = {None: "rounds", "max_points": "max_points", "done": "settings"}[stopped]
        why = f"{why}. {_go_on(ended, campaign)}"
    done = f"{len(own)} round{'' if len(own) == 1 else 's'}, {points} points"
    text = f"{_ENDED[ended]} after {done}: {why}"
    return {"rounds": len(own), "points": points, "ended": ended, "text": text}


_ENDED = {
    "target": "the target was reached",
    "decided": "decided",
    "hopeless": "given up",
    "not_comparable": "not tried",
    "rounds": "the rounds were used up",
    "max_points": "the points were used up",
    "settings": "it had ended, under other settings of the analysis,",
}


def _go_on(ended: str, campaign: Campaign) -> str:
    return {
        "rounds": f"To go on, raise refine.rounds above {campaign.refine.rounds}",
        "max_points": f"To go on, raise refine.max_points above {campaign.refine.max_points}",
        "settings": "To go on, remove the last plan below refine/ of the campaign's results",
    }[ended]


def prospect(campaign: Campaign, planned: Sequence[Round]) -> str:
    """What may still come, in one sentence, for who plans a campaign."""
    left = campaign.refine.rounds - len(planned)
    points = campaign.refine.max_points - sum(len(one.points) for one in planned)
    first = trial_of(len(planned) + 1)
    long_s = campaign.load.with_long_windows.steady.min_s
    return (
        f"refinement may add up to {left} round{'' if left == 1 else 's'} (from trial {first}) "
        f"and {points} points; which ones, and which in windows of {long_s:g} s, is chosen when all "
        "points before are measured"
    )
