"""Why it crosses: what a speculating step yields against what it costs, and what would change that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossover.report.figure import Figure, Table, figure_of
from crossover.report.wording import (
    MISSING,
    Row,
    comparison_name,
    crossing_words,
    label_words,
    level_number,
    level_text,
    ratio,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossover.axis import Axis
    from crossover.campaign import Campaign
    from crossover.report.levels import Level

_BOUND = {"equal": "", "at_most": "≤ ", "at_least": "≥ ", "unknown": ""}
_PAYS = {True: "yes", False: "no", None: "cannot tell"}


@dataclass(frozen=True)
class Why:
    """The explanation of one comparison: a figure, or `sentences` that say why there is none."""

    name: str
    figure: Figure | None
    sentences: list[str]
    table: Table | None
    predictions: Table | None


def explain(
    verdict: Row, workload: str, levels: Sequence[Level], campaign: Campaign, axis: Axis
) -> Why | None:
    """What `break_even` of a verdict says; None: it was not asked."""
    found = verdict["break_even"]
    if found is None:
        return None
    name = comparison_name(verdict, campaign)
    return Why(
        name=name,
        figure=_figure(found, verdict, name, workload, levels, campaign, axis)
        if found["levels"]
        else None,
        sentences=_sentences(found)
        if found["levels"]
        else [f"{name}: {s}" for s in found["sentences"]],
        table=_table(found, name, workload, levels, axis) if found["levels"] else None,
        predictions=_predictions(found, name, workload, axis)
        if any(p["levels"] for p in found["what_if"])
        else None,
    )


def _sentences(found: Row) -> list[str]:
    """Of the levels' sentences those of both ends and of every change; the table has them all."""
    pays = [n["pays"] for n in found["levels"]]
    told = [i for i in range(len(pays)) if i in (0, len(pays) - 1) or pays[i] != pays[i - 1]]
    return [found["sentences"][i] for i in told] + found["sentences"][len(pays) :]


def _figure(
    found: Row,
    verdict: Row,
    name: str,
    workload: str,
    levels: Sequence[Level],
    campaign: Campaign,
    axis: Axis,
) -> Figure:
    variant = found["variant"]
    means = [
        {
            "variant": variant,
            "level": n["level"],
            "yields": n["tokens_per_step"],
            "cost": n["step_cost"],
            "lo": n["step_cost_lo"],
            "hi": n["step_cost_hi"],
            "said": f"yields {n['tokens_per_step']:.2f} tokens, costs "
            f"{ratio(n['step_cost'], n['step_cost_lo'], n['step_cost_hi'])} plain steps",
        }
        for n in found["levels"]
    ]
    first, last = means[0], means[-1]
    finding = f"A speculating step of {variant} {first['said']} at {axis.at(first['level'])}"
    if first is not last:
        finding += f"; it {last['said']} at {axis.at(last['level'])}"
    return figure_of(
        "why",
        workload,
        levels,
        axis=axis,
        slug=f"why-{workload}-{variant}-{found['baseline']}",
        title=f"Why: {name}",
        note=(
            "Solid: tokens that a speculating step yields, by the engine's counters. Dashed: what "
            "the step costs, in steps of the plain server at the same load, with its interval. "
            "Speculation pays where the solid line is above the dashed one."
        ),
        finding=finding + "." + _meeting(verdict),
        variants=[variant],
        means=means,
        crossings=[
            {
                "variant": variant,
                "c_star": c["c_star"],
                "lo": c["ci"][0],
                "hi": c["ci"][1],
                "said": crossing_words(c, campaign),
            }
            for c in verdict["crossings"]
        ],
    )


def _meeting(verdict: Row) -> str:
    at_levels = ", ".join(level_number(c["c_star"]) for c in verdict["crossings"])
    return f" The two meet at {verdict['axis'].words} {at_levels}." if at_levels else ""


def _table(found: Row, name: str, workload: str, levels: Sequence[Level], axis: Axis) -> Table:
    measured = {
        n.level: n.mean("acceptance_length") for n in levels if n.variant == found["variant"]
    }
    return Table(
        caption=(
            f"Break-even of {name}, {workload}: how much acceptance it takes to pay at each level. "
            "≤ and ≥: from one arm only a bound is known."
        ),
        columns=[
            axis.words.capitalize(),
            "Tokens a step",
            "Step cost, plain steps",
            "Pays",
            "Break-even, tokens a step",
            "Break-even acceptance length",
            "Measured acceptance length",
        ],
        rows=[
            [
                level_text(n["level"]),
                f"{n['tokens_per_step']:.2f}",
                ratio(n["step_cost"], n["step_cost_lo"], n["step_cost_hi"]),
                _PAYS[n["pays"]],
                _bounded(n["break_even_is"], n["break_even_tokens_per_step"]),
                _bounded(n["break_even_is"], n["break_even_acceptance_length"]),
                _bounded("equal", measured.get(n["level"])),
            ]
            for n in found["levels"]
        ],
        numeric=frozenset({0, 1, 2, 4, 5, 6}),
    )


def _bounded(bound: str, value: float | None) -> str:
    return MISSING if value is None else f"{_BOUND[bound]}{value:.2f}"


def _predictions(found: Row, name: str, workload: str, axis: Axis) -> Table:
    rows = [
        [
            f"{p['acceptance_length']:g}",
            level_text(n["level"]),
            _BOUND[p["bound"] or "equal"] + ratio(n["ratio"], n["lo"], n["hi"]),
            label_words(n["label"], "output_throughput"),
        ]
        for p in found["what_if"]
        for n in p["levels"]
    ]
    return Table(
        caption=(
            f"Prediction, not measured: {name}, {workload}, at other acceptance lengths. Measure it "
            "before relying on it. ≥ and ≤: from one arm only a bound is known; the bounds in "
            "brackets then hold whatever prefill costs."
        ),
        columns=[
            "Acceptance length",
            axis.words.capitalize(),
            "Predicted ratio [bounds]",
            "Predicted result",
        ],
        rows=rows,
        heads=2,
        numeric=frozenset({0, 1, 2}),
    )
