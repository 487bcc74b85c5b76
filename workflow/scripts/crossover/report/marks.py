"""What all charts share: axes, the looks of variants, lines and trial symbols.

The parameter `off` holds the variants that the reader has switched off, in every chart.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import altair as alt

if TYPE_CHECKING:
    from crossover.report import theme
    from crossover.report.figure import Figure

Looks = Mapping[str, "theme.Look"]

SWITCHED_ON = "indexof(off, datum.variant) < 0"


def rows(values: list[dict[str, Any]]) -> alt.Chart:
    """A layer's rows; those of a variant follow its switch."""
    chart = alt.Chart(alt.Data(values=values))
    if values and "variant" in values[0]:
        return chart.transform_filter(SWITCHED_ON)
    return chart


def span(figure: Figure) -> tuple[float, float]:
    """The ends of the axis of load, a little beyond the tested levels."""
    low, high = figure.levels[0], figure.levels[-1]
    return (low / 2, high * 2) if low == high else (low / 1.15, high * 1.15)


def x(figure: Figure, column: str = "level") -> alt.X:
    """The axis of load: log2, a tick a tested level."""
    scale = alt.Scale(type="log", base=2, domain=list(span(figure)), nice=False)
    axis = alt.Axis(values=figure.levels, format=",~g", labelSeparation=4)
    title = f"{figure.axis.words} ({figure.axis.unit or 'requests in flight'})"
    return alt.X(f"{column}:Q", title=title, scale=scale, axis=axis)


def y(
    title: str, scale: alt.Scale, axis: alt.Axis | alt.UndefinedType = alt.Undefined
) -> Callable[[str], alt.Y]:
    """The vertical axis, for whichever column a layer draws."""
    return functools.partial(alt.Y, type="quantitative", title=title, scale=scale, axis=axis)


def ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20, … from `low` to `high`; over three decades, powers of ten only."""
    steps = (1,) if high / low > 1000 else (1, 2, 5)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [v for e in decades for k in steps if low <= (v := k * 10.0**e) <= high]


def look(figure: Figure, looks: Looks, *channels: str) -> dict[str, Any]:
    """The channels that tell variants apart; the page's own legend explains them."""
    mine = [looks[variant] for variant in figure.variants]
    ranges = {
        "color": (alt.Color, [look.colour for look in mine]),
        "shape": (alt.Shape, [look.shape for look in mine]),
        "strokeDash": (alt.StrokeDash, [list(look.dash) for look in mine]),
    }
    return {
        name: channel(
            "variant:N", scale=alt.Scale(domain=figure.variants, range=values), legend=None
        )
        for name, (channel, values) in ranges.items()
        if name in channels
    }


def tooltip(figure: Figure, value: str, *more: alt.Tooltip) -> list[alt.Tooltip]:
    """Variant, level and the row's own words."""
    return [
        alt.Tooltip("variant:N"),
        alt.Tooltip("level:Q", title=figure.axis.words),
        *more,
        alt.Tooltip("said:N", title=value),
    ]


def lines(
    figure: Figure,
    looks: Looks,
    up: alt.Y,
    value: str,
    along: list[dict[str, Any]] | None = None,
) -> list[alt.Chart]:
    """Level means: a symbol a level, and lines that join them, or the rows of `along`."""
    return [
        rows(along or figure.means)
        .mark_line(strokeWidth=2)
        .encode(x=x(figure), y=up, **look(figure, looks, "color", "strokeDash")),
        rows(figure.means)
        .mark_point(filled=True, opacity=1, size=80)
        .encode(
            x=x(figure),
            y=up,
            tooltip=tooltip(figure, value),
            **look(figure, looks, "color", "shape"),
        ),
    ]


def trials(figure: Figure, looks: Looks, up: alt.Y, value: str) -> list[alt.Chart]:
    """Small symbols a trial, left of their level so that its mean hides none; hollow: invalid."""
    layers = []
    for valid, style in (
        (True, {"filled": True, "size": 18, "opacity": 0.75}),
        (False, {"fill": "var(--page)", "size": 40, "opacity": 1, "strokeWidth": 1.5}),
    ):
        of_kind = [r for r in figure.trials if r["valid"] is valid]
        if of_kind:
            said = tooltip(figure, value, alt.Tooltip("trial:Q", title="trial"))
            layers.append(
                rows(of_kind)
                .mark_point(xOffset=-8, **style)
                .encode(x=x(figure), y=up, tooltip=said, **look(figure, looks, "color", "shape"))
            )
    return layers


FEW_CROSSINGS = 3
"""Up to so many columns lie over each other and can be told apart."""


def crossings(figure: Figure, looks: Looks) -> list[alt.Chart]:
    """A column over each crossing's interval (open ends reach the edge), a rule at C*."""
    low, high = span(figure)
    opacity = 0.12 if len(figure.crossings) <= FEW_CROSSINGS else 0.05
    layers = []
    for crossing in figure.crossings:
        colour = looks[crossing["variant"]].colour
        place = {
            "lo": min(max(crossing["lo"] or low, low), high),
            "hi": min(max(crossing["hi"] or high, low), high),
            "c_star": crossing["c_star"],
            "variant": crossing["variant"],
            "said": crossing["said"],
        }
        said = [alt.Tooltip("variant:N"), alt.Tooltip("said:N", title="crosses at")]
        if crossing["lo"] is not None or crossing["hi"] is not None:
            layers.append(
                rows([place])
                .mark_rect(color=colour, opacity=opacity)
                .encode(x=x(figure, "lo"), x2="hi:Q", tooltip=said)
            )
        if crossing["c_star"] is not None:
            layers.append(
                rows([place])
                .mark_rule(color=colour, strokeDash=[3, 3], strokeWidth=1.5)
                .encode(x=x(figure, "c_star"), tooltip=said)
            )
    return layers
