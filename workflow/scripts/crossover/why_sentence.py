"""Why a variant pays, and what another acceptance would change, in plain words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from crossover.axis import whole
from crossover.reasons import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossover.step_cost import StepCost
    from crossover.what_if import BreakEven, Prediction

NOT_MEASURED = "This is a prediction: measure it before relying on it."


def sentences(explained: BreakEven) -> list[str]:
    """One sentence a level, what limits them, and one for each acceptance that was asked for."""
    if not explained.levels:
        return [f"Cannot tell why: {words(explained.reason)}."]
    said = [level_sentence(level) for level in explained.levels]
    if explained.reason is not None:
        said.append(f"Nothing follows for another text: {words(explained.reason)}.")
    elif explained.partner is None and any(
        level.break_even_tokens_per_step is not None for level in explained.levels
    ):
        said.append(
            "Break-even is a bound: how the cost of a step changes with acceptance is not known "
            "from one arm, since no engine's prefill time is recorded. An arm that differs in "
            "acceptance alone would tell."
        )
    return said + [prediction_sentence(p, explained) for p in explained.what_if]


def level_sentence(level: StepCost) -> str:
    """What a speculating step yields and costs at a level, and what it takes to pay."""
    yields = (
        f"At concurrency {level.concurrency:g} a speculating step yields {level.tokens_per_step:.2f} tokens "
        f"and costs {level.step_cost:.2f} plain steps{_interval(level.step_cost_lo, level.step_cost_hi)}: "
    )
    even = level.break_even_tokens_per_step
    if level.break_even_is == "unknown":
        return f"{yields}cannot tell whether it pays."
    if even is None:
        return f"{yields}more acceptance would not make it pay more."
    if level.break_even_is == "at_most":
        return f"{yields}it pays while it yields more than {even:.2f}, and perhaps below."
    if level.break_even_is == "at_least":
        return f"{yields}it does not pay, and would not below {even:.2f} tokens a step."
    verb = {
        True: "it pays while it yields",
        False: "it does not pay; it would if it yielded",
        None: "cannot tell whether it pays; it does if it yields",
    }[level.pays]
    return (
        f"{yields}{verb} more than {even:.2f}{_interval(level.break_even_lo, level.break_even_hi)}."
    )


def prediction_sentence(prediction: Prediction, explained: BreakEven) -> str:
    """Where the variant would pay at another acceptance."""
    given = f"At an acceptance length of {prediction.acceptance_length:g}"
    if prediction.reason is not None:
        return f"{given}: cannot tell, {words(prediction.reason)}."
    by = explained.partner
    basis = f" (from {explained.variant}{f' and {by}' if by else ' alone'})"
    return f"{given}{basis} {explained.variant} {_where(prediction)}. {NOT_MEASURED}"


def _where(prediction: Prediction) -> str:
    labels = [level.label for level in prediction.levels]
    span = _span([level.concurrency for level in prediction.levels])
    if prediction.bound is not None:
        return _bounded(prediction, span)
    if prediction.crossings:
        return " and ".join(
            f"would cross at concurrency {whole(crossing.c_star)} "
            f"(interval {whole(crossing.ci[0])}–{whole(crossing.ci[1])}), "
            f"{'faster below' if crossing.direction == 'down' else 'faster above'}"
            for crossing in prediction.crossings
        )
    if set(labels) == {"+"}:
        return f"would be faster on all of {span} tested"
    if set(labels) == {"-"}:
        return f"would be slower on all of {span} tested"
    return f"would cross nowhere that can be told on {span} tested"


def _bounded(prediction: Prediction, span: str) -> str:
    """From one arm: where it is sure to pay, where sure not to, and so where it would cross."""
    pays, loses, unsure = (
        ", ".join(f"{level.concurrency:g}" for level in prediction.levels if level.label == label)
        for label in "+-?"
    )
    if pays and loses:
        text = f"would pay at concurrency {pays} and not at {loses}"
    elif pays or loses:
        text = f"would {'' if pays else 'not '}pay at concurrency {pays or loses}"
    else:
        return f"may pay or not on {span} tested: one arm does not tell"
    if prediction.crossings:
        text += ", and " + " and ".join(
            f"cross between {whole(crossing.ci[0])} and {math.ceil(crossing.ci[1])}"
            for crossing in prediction.crossings
        )
    elif prediction.censored:
        text += "; a crossover, if any, lies {side} {bound:g}".format(**prediction.censored)
    return f"{text}; at {unsure} one arm does not tell" if unsure else text


def _span(levels: Sequence[float]) -> str:
    return f"{levels[0]:g}–{levels[-1]:g}" if len(levels) > 1 else f"{levels[0]:g}"


def _interval(lo: float | None, hi: float | None) -> str:
    return "" if lo is None or hi is None else f" ({lo:.2f}–{hi:.2f})"
