"""A verdict in plain words: what holds, how surely, on what range, and what is missing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from crossover.axis import AXES
from crossover.reasons import words
from crossover.verdict_metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from crossover.axis import Axis
    from crossover.stats.curve import Crossing
    from crossover.verdict_record import Level, Verdict

NO_RATIO = "no ratio, both are 0"

UNNAMED = "output_throughput"
"""The metric that a sentence does not name."""

NOT_SPEEDS = ("goodput", "throughput_per_joule")
"""Metrics of which more is better, not faster."""


def sentence(verdict: Verdict) -> str:
    """The verdict in one to three sentences.

    Concurrency is whole: a crossover at C* = 10.7 reads "up to concurrency 10", an interval
    [6.2, 15.9] reads 6–15. A request rate is not.
    """
    say = {
        "crossover": _crossover,
        "multiple_crossovers": _crossover,
        "variant_faster_throughout": _throughout,
        "baseline_faster_throughout": _throughout,
        "equivalent": _equivalent,
        "inconclusive": _inconclusive,
        "not_comparable": _not_comparable,
    }[verdict.verdict]
    return _title(verdict) + say(verdict)


def _title(verdict: Verdict) -> str:
    """What is judged; a time to first token is that of its kind of load."""
    if verdict.metric == UNNAMED:
        return ""
    loop = f" ({AXES[verdict.axis].loop})" if verdict.metric == "ttft" else ""
    return f"{METRICS[verdict.metric].title}{loop}: "


# ------------------------------------------------------------------ verdicts


def _crossover(verdict: Verdict) -> str:
    faster, slower = _comparatives(verdict)
    axis = AXES[verdict.axis]
    parts = []
    for i, crossing in enumerate(verdict.crossings):
        word = faster if crossing.direction == "down" else slower
        up_to = axis.below(crossing.c_star)
        interval = f"{_percent(verdict.confidence)} interval " if i == 0 else ""
        parts.append(
            f"{word} up to {axis.at(up_to) if i == 0 else up_to} "
            f"({interval}{_interval(axis, crossing)})"
        )
    beyond = slower if verdict.crossings[-1].direction == "down" else faster
    joined = f"{', '.join(parts)} and {beyond} beyond"
    text = f"{verdict.variant} is {joined}, on {_span(verdict)} tested ({_extremes(verdict)})."
    gaps = [_gap(verdict.levels, c.c_star) for c in verdict.crossings if c.coarse]
    if gaps := [
        f"between {low} and {high}" for low, high in gaps if high - low > 1 or not axis.closed_loop
    ]:
        text += (
            f" Nothing was tested {' nor '.join(gaps)}{_unit(verdict)}: measure there to narrow it."
        )
    first, last = verdict.crossings[0].bracket[0], verdict.crossings[-1].bracket[1]
    if outside := [level for level in verdict.labelled("?") if not first < level < last]:
        text += f" Unresolved: {_at(outside, verdict)}."
    if "operational_law_violated" in verdict.reasons:
        text += (
            " Throughput changes more between these levels than concurrency explains, "
            "as at a cap or a switch of mode: look there first."
        )
    return text


def _throughout(verdict: Verdict) -> str:
    ours = verdict.verdict == "variant_faster_throughout"
    faster, slower = _comparatives(verdict)
    word, other, label = (faster, slower, "+") if ours else (slower, faster, "-")
    clear = verdict.labelled(label)
    margin = _percent(verdict.margin)
    if len(clear) == len(verdict.levels):
        text = (
            f"{verdict.variant} is {word} at every tested {_axis(verdict)}, {_span(verdict)} "
            f"({_range(verdict.levels)})"
        )
    else:
        text = (
            f"{verdict.variant} is {word} at {_at(clear, verdict)} and nowhere more than {margin} "
            f"{other}, on {_span(verdict)} tested ({_range(verdict.levels)})"
        )
    absent = "no crossover" if ours else "it does not start to pay"
    text += f"; {absent} up to {_last(verdict)} tested (that is not “never”)."
    return text + _within_margin(verdict)


def _equivalent(verdict: Verdict) -> str:
    return (
        f"{verdict.variant} and {verdict.baseline} differ by less than {_percent(verdict.margin)} "
        f"at every tested {_axis(verdict)}, {_span(verdict)} ({_range(verdict.levels)})."
        + _within_margin(verdict)
    )


def _within_margin(verdict: Verdict) -> str:
    if "crossing_within_margin" not in verdict.reasons:
        return ""
    below = AXES[verdict.axis].below
    where = " and ".join(f"after {below(c.c_star)}{_unit(verdict)}" for c in verdict.crossings)
    return (
        f" The sign changes {where}, but within the margin of {_percent(verdict.margin)}, "
        "so it does not count as a crossover."
    )


def _not_comparable(verdict: Verdict) -> str:
    lacking = [
        name
        for arm, name in (("baseline", verdict.baseline), ("variant", verdict.variant))
        if f"{arm}_without_valid_points" in verdict.reasons
    ]
    if lacking:
        text = f"Not comparable: no valid point of {' nor of '.join(lacking)}"
        mine = [row for row in verdict.bad_rows if row["variant"] in lacking]
        if not mine:
            return f"{text} was measured."
        why = sorted({reason for row in mine for reason in row["reasons"]})
        return f"{text} ({len(mine)} left out: {'; '.join(map(words, why))})."
    if "no_common_level" not in verdict.reasons:
        return f"Not comparable: {'; '.join(map(words, verdict.reasons))}."
    return (
        f"Not comparable: {verdict.variant} and {verdict.baseline} have no {_axis(verdict)} in common; "
        f"only one of them was measured validly at "
        f"{_list(verdict.dropped_levels)}{_unit(verdict)}."
    )


# ------------------------------------------------------------------ cannot tell


def _inconclusive(verdict: Verdict) -> str:
    if verdict.levels[0].label is None:
        return _unreplicated(verdict)
    better, worse, unresolved = (verdict.labelled(label) for label in "+-?")
    if "no_significant_level" in verdict.reasons:
        return (
            f"Cannot tell: no tested {_axis(verdict)}, {_span(verdict)}, shows a difference beyond "
            f"the noise ({_range(verdict.levels)}, {verdict.n_trials} trials)." + _missing(verdict)
        )
    found = _found(verdict, better, worse)
    if not unresolved:
        return (
            f"Cannot tell whether it matters: {verdict.variant} is {found} ({_range(verdict.levels)}), "
            f"too close to the margin of {_percent(verdict.margin)} to say more; "
            "more trials would help."
        )
    return (
        f"Cannot tell for all of {_span(verdict)} tested: {verdict.variant} is {found}, but "
        f"{_at(unresolved, verdict)} {'is' if len(unresolved) == 1 else 'are'} unresolved after "
        f"{verdict.n_trials} trials." + _missing(verdict)
    )


def _missing(verdict: Verdict) -> str:
    """What would resolve the unresolved levels."""
    short = [n for n in verdict.needed if n["window_cv"] is not None]
    others = [n for n in verdict.needed if n["window_cv"] is None]
    possible = [n for n in others if n["trials"] is not None]
    beyond = [n["concurrency"] for n in others if n["trials"] is None]
    parts = []
    if possible:
        most = max(n["trials"] for n in possible)
        at = _at([n["concurrency"] for n in possible], verdict)
        parts.append(f"about {most} trials would resolve {at}")
    if beyond:
        parts.append(
            f"the difference at {_at(beyond, verdict)} is too small to resolve "
            "with a sensible number of trials"
        )
    if short:
        at = _at([n["concurrency"] for n in short], verdict)
        noises = sorted(100 * n["window_cv"] for n in short)
        least, most = (f"{x:.{0 if x >= 10 else 1}f}" for x in (noises[0], noises[-1]))
        parts.append(
            f"at {at} the windows are too short: within one, throughput is known to no better than "
            f"±{least if least == most else f'{least}–{most}'} %, so measure longer ones (load.steady)"
        )
    text = "; ".join(parts)
    return f" {text[0].upper()}{text[1:]}." if text else ""


def _unreplicated(verdict: Verdict) -> str:
    if "fewer_than_2_common_levels" in verdict.reasons:
        text = (
            f"Cannot tell: only {AXES[verdict.axis].at(_range_of_levels(verdict))} was measured in both "
            f"({_range(verdict.levels)}), and a crossover takes at least two levels."
        )
        return f"{text} Measure more levels, and at least 3 trials."
    if "single_repeat" in verdict.reasons:
        text = f"One trial only{_of_which(verdict)}: cannot tell."
    else:
        text = "Too little was repeated to know the noise: cannot tell."
    if verdict.indicative:
        text += f" {_suggestion(verdict)}"
    return f"{text} Measure at least 3 trials."


def _of_which(verdict: Verdict) -> str:
    baseline = max(level.baseline_trials for level in verdict.levels)
    variant = max(level.variant_trials for level in verdict.levels)
    if (baseline > 1) == (variant > 1):
        return ""
    return f" of {verdict.variant if baseline > 1 else verdict.baseline}"


def _suggestion(verdict: Verdict) -> str:
    """What unrepeated values suggest under an assumed noise, and where their ratio passes 1."""
    labels = verdict.indicative["labels"]
    better, worse = (
        [v.concurrency for v, label in zip(verdict.levels, labels, strict=True) if label == sign]
        for sign in "+-"
    )
    single = "The single run" if verdict.n_trials == 1 else "What was measured"
    assumed = f"assuming that runs vary by {_percent(verdict.indicative['assumed_cv'])}"
    if better or worse:
        found = _found(verdict, better, worse)
        text = f"{single} suggests that {verdict.variant} is {found}, {assumed}"
    else:
        text = f"{single} shows no difference beyond the noise, {assumed}"
    passes = [
        f"{a.concurrency} and {b.concurrency}"
        for a, b in zip(verdict.levels, verdict.levels[1:], strict=False)
        if (a.ratio - 1) * (b.ratio - 1) < 0
    ]
    if passes:
        text += f"; the ratio passes 1 between {', '.join(passes)}"
    return f"{text} ({_ends(verdict)})."


# ------------------------------------------------------------------ phrases


def _found(verdict: Verdict, better: Sequence[int], worse: Sequence[int]) -> str:
    parts = [
        f"{word} at {_at(levels, verdict)}"
        for word, levels in zip(_comparatives(verdict), (better, worse), strict=True)
        if levels
    ]
    return ", ".join(parts)


def _percent(share: float) -> str:
    return f"{round(100 * share, 6):g} %"


def _comparatives(verdict: Verdict) -> tuple[str, str]:
    """What the variant is where its ratio is above 1, and below it."""
    return ("better", "worse") if verdict.metric in NOT_SPEEDS else ("faster", "slower")


def _axis(verdict: Verdict) -> str:
    return AXES[verdict.axis].words


def _interval(axis: Axis, crossing: Crossing) -> str:
    low, high = map(axis.below, crossing.ci)
    return low if low == high else f"{low}–{high}"


def _times(ratio: float) -> str:
    """`1.23×`; without a number where one arm's metric is 0."""
    return f"{ratio:.2f}×" if 0 < ratio < math.inf else "0" if ratio == 0 else "∞"


def _unit(verdict: Verdict) -> str:
    """What is said after a level, with the space before it; nothing after a concurrency."""
    unit = AXES[verdict.axis].unit
    return f" {unit}" if unit else ""


def _last(verdict: Verdict) -> str:
    return f"{verdict.levels[-1].concurrency}{_unit(verdict)}"


def _span(verdict: Verdict) -> str:
    return _range_of_levels(verdict) + _unit(verdict)


def _range_of_levels(verdict: Verdict) -> str:
    first, last = verdict.levels[0].concurrency, verdict.levels[-1].concurrency
    return str(first) if first == last else f"{first}–{last}"


def _ends(verdict: Verdict) -> str:
    first, last = verdict.levels[0], verdict.levels[-1]
    return (
        f"{_times(first.ratio)} at {first.concurrency}, {_times(last.ratio)} at {last.concurrency}"
    )


def _extremes(verdict: Verdict) -> str:
    """The most and the least favourable ratio, in the order of their levels."""
    by_ratio = sorted(_with_ratio(verdict.levels), key=lambda level: level.ratio)
    if not by_ratio:
        return NO_RATIO
    pair = sorted((by_ratio[0], by_ratio[-1]), key=lambda level: level.concurrency)
    return ", ".join(f"{_times(level.ratio)} at {level.concurrency}" for level in pair)


def _range(levels: Iterable[Level]) -> str:
    ratios = [_times(ratio) for ratio in sorted(level.ratio for level in _with_ratio(levels))]
    if not ratios:
        return NO_RATIO
    return ratios[0] if ratios[0] == ratios[-1] else f"{ratios[0]} to {ratios[-1]}"


def _with_ratio(levels: Iterable[Level]) -> list[Level]:
    """Those of which the ratio is known; two zeros have none."""
    return [level for level in levels if not math.isnan(level.ratio)]


def _gap(levels: Sequence[Level], concurrency: float) -> tuple[float, float]:
    """The neighbouring tested levels around a concurrency."""
    tested = [level.concurrency for level in levels]
    high = next((i for i, level in enumerate(tested) if level > concurrency), len(tested) - 1)
    return tested[high - 1], tested[high]


def _at(levels: Sequence[float], verdict: Verdict) -> str:
    """Levels in words; three or more that were tested side by side become a range."""
    tested = [level.concurrency for level in verdict.levels]
    runs: list[list[float]] = []
    for level in map(AXES[verdict.axis].level, levels):
        if runs and tested.index(level) == tested.index(runs[-1][-1]) + 1:
            runs[-1].append(level)
        else:
            runs.append([level])
    words = []
    for run in runs:
        words += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else map(str, run)
    return _list(words) + _unit(verdict)


def _list(words: Iterable[object]) -> str:
    *head, last = map(str, words)
    return f"{', '.join(head)} and {last}" if head else last
