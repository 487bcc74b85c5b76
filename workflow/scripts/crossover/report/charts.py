"""Figures as Vega-Lite: one drawing a kind, nothing smoothed between measured levels."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import altair as alt
import vl_convert

from crossover.report import theme

if TYPE_CHECKING:
    from crossover.report.figures import Figure

Looks = Mapping[str, theme.Look]

CONCURRENCY = "concurrency (requests in flight)"
HEIGHTS = {"speedup": 320, "throughput": 280, "curve": 300, "latency": 240, "acceptance": 220}
LOG_SPAN = 20
"""Largest over smallest value from which a latency axis is logarithmic."""


def draw(figure: Figure, looks: Looks) -> dict[str, Any] | None:
    """The Vega-Lite spec of a figure, as wide as its place; None: there is nothing to draw."""
    if not figure.means and not figure.trials:
        return None
    chart = alt.layer(*_DRAWINGS[figure.kind](figure, looks))
    spec = chart.properties(
        width="container",
        height=HEIGHTS[figure.kind],
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    ).to_dict()
    return {**_with_shared_data(spec), "config": theme.CHART_CONFIG}


def static_svg(spec: Mapping[str, Any], width: int) -> str:
    """The chart as an SVG of this width in pixels; its colours are the page's CSS variables."""
    return vl_convert.vegalite_to_svg({**spec, "width": width})


def _with_shared_data(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with each set of rows once, under `datasets`, instead of once a layer."""
    datasets: dict[str, list[dict[str, Any]]] = {}

    def named(part: Mapping[str, Any]) -> dict[str, Any]:
        if "data" not in part:  # drawn from the data of the whole chart
            return dict(part)
        rows = part["data"]["values"]
        name = next((n for n, known in datasets.items() if known == rows), f"rows{len(datasets)}")
        datasets[name] = rows
        return {**part, "data": {"name": name}}

    layers = [named(layer) for layer in spec["layer"]]
    return {**named(spec), "layer": layers, "datasets": datasets}


# ------------------------------------------------------------------ axes and looks


def _data(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))


def _span(figure: Figure) -> tuple[float, float]:
    low, high = figure.levels[0], figure.levels[-1]
    return (low / 2, high * 2) if low == high else (low / 1.15, high * 1.15)


def _x(figure: Figure, column: str = "concurrency") -> alt.X:
    scale = alt.Scale(type="log", base=2, domain=list(_span(figure)), nice=False)
    axis = alt.Axis(values=figure.levels, format=",d")
    return alt.X(f"{column}:Q", title=CONCURRENCY, scale=scale, axis=axis)


def _y(
    title: str, scale: alt.Scale, axis: alt.Axis | alt.UndefinedType = alt.Undefined
) -> Callable[[str], alt.Y]:
    """The vertical axis, for whichever column a layer draws."""
    return functools.partial(alt.Y, type="quantitative", title=title, scale=scale, axis=axis)


def _ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20, … from `low` to `high`; over three decades, powers of ten only."""
    steps = (1,) if high / low > 1000 else (1, 2, 5)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [v for e in decades for k in steps if low <= (v := k * 10.0**e) <= high]


def _look(figure: Figure, looks: Looks, *channels: str) -> dict[str, Any]:
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


def _tooltip(value: str, *more: alt.Tooltip) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("variant:N"),
        alt.Tooltip("concurrency:Q", title="concurrency"),
        *more,
        alt.Tooltip("said:N", title=value),
    ]


def _lines(figure: Figure, looks: Looks, y: alt.Y, value: str) -> list[alt.Chart]:
    """Level means: lines with a symbol a level."""
    base = _data(figure.means)
    return [
        base.mark_line(strokeWidth=2).encode(
            x=_x(figure), y=y, **_look(figure, looks, "color", "strokeDash")
        ),
        base.mark_point(filled=True, opacity=1, size=80).encode(
            x=_x(figure),
            y=y,
            tooltip=_tooltip(value),
            **_look(figure, looks, "color", "shape"),
        ),
    ]


def _trials(figure: Figure, looks: Looks, y: alt.Y, value: str) -> list[alt.Chart]:
    """Small symbols a trial, left of their level so that its mean hides none; hollow: invalid."""
    layers = []
    for valid, style in (
        (True, {"filled": True, "size": 18, "opacity": 0.75}),
        (False, {"fill": "var(--page)", "size": 40, "opacity": 1, "strokeWidth": 1.5}),
    ):
        rows = [r for r in figure.trials if r["valid"] is valid]
        if rows:
            tooltip = _tooltip(
                value if valid else f"{value} (invalid)", alt.Tooltip("trial:Q", title="trial")
            )
            layers.append(
                _data(rows)
                .mark_point(xOffset=-8, **style)
                .encode(
                    x=_x(figure), y=y, tooltip=tooltip, **_look(figure, looks, "color", "shape")
                )
            )
    return layers


# ------------------------------------------------------------------ drawings


def _speedup(figure: Figure, looks: Looks) -> list[alt.Chart]:
    low, high = _span(figure)
    values = [
        v
        for row in (*figure.means, *figure.trials)
        for v in (row["ratio"], row.get("lo"), row.get("hi"))
        if v is not None
    ]
    margin = figure.margin or 0.0
    bottom, top = min(*values, 1 / (1 + margin)), max(*values, 1 + margin)
    room = 0.06 * (top - bottom)
    scale = alt.Scale(domain=[max(0.0, bottom - room), top + room], zero=False, nice=False)
    y = _y("throughput ratio", scale)
    layers = [
        _data([{"low": low, "high": high, "from": 1 / (1 + margin), "to": 1 + margin}])
        .mark_rect(color="var(--soft)", opacity=0.12)
        .encode(x=_x(figure, "low"), x2="high:Q", y=y("from"), y2="to:Q"),
        *_crossings(figure, looks),
        _data([{"at": 1.0}]).mark_rule(color="var(--ink)", strokeWidth=1).encode(y=y("at")),
    ]
    if band := [r for r in figure.means if r["lo"] is not None and r["hi"] is not None]:
        base = _data(band)
        # rules as well: a single level has no area
        layers += [
            base.mark_area(opacity=0.14, line=False).encode(
                x=_x(figure), y=y("lo"), y2="hi:Q", **_look(figure, looks, "color")
            ),
            base.mark_rule(opacity=0.55, strokeWidth=1.5).encode(
                x=_x(figure), y=y("lo"), y2="hi:Q", **_look(figure, looks, "color")
            ),
        ]
    layers += _trials(figure, looks, y("ratio"), "ratio")
    return layers + (_lines(figure, looks, y("ratio"), "ratio") if figure.means else [])


def _crossings(figure: Figure, looks: Looks) -> list[alt.Chart]:
    """A column over each crossing's interval (open ends reach the edge), a rule at C*."""
    low, high = _span(figure)
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
        tooltip = [
            alt.Tooltip("variant:N"),
            alt.Tooltip("said:N", title="crosses at"),
        ]
        if crossing["lo"] is not None or crossing["hi"] is not None:
            layers.append(
                _data([place])
                .mark_rect(color=colour, opacity=0.12)
                .encode(x=_x(figure, "lo"), x2="hi:Q", tooltip=tooltip)
            )
        if crossing["c_star"] is not None:
            layers.append(
                _data([place])
                .mark_rule(color=colour, strokeDash=[3, 3], strokeWidth=1.5)
                .encode(x=_x(figure, "c_star"), tooltip=tooltip)
            )
    return layers


def _throughput(figure: Figure, looks: Looks) -> list[alt.Chart]:
    y = _y("tokens/s", alt.Scale(zero=True))
    layers = _trials(figure, looks, y("value"), "throughput")
    return layers + (_lines(figure, looks, y("value"), "mean") if figure.means else [])


def _curve(figure: Figure, looks: Looks) -> list[alt.Chart]:
    base = _data(figure.means)
    x = alt.X(
        "rate:Q",
        title="decode rate of one request (tokens/s)",
        scale=alt.Scale(zero=True),
        axis=alt.Axis(tickCount=6),
    )
    y = _y("tokens/s of the server", alt.Scale(zero=True))("value")
    return [
        base.mark_line(strokeWidth=1.5).encode(
            x=x, y=y, order="concurrency:Q", **_look(figure, looks, "color", "strokeDash")
        ),
        base.mark_point(filled=True, opacity=1, size=80).encode(
            x=x, y=y, tooltip=_tooltip("rates"), **_look(figure, looks, "color", "shape")
        ),
        *(
            base.mark_text(
                dx=dx, dy=dy, align="left" if dx > 0 else "right", fontSize=11, color=colour
            )
            .transform_filter(alt.FieldEqualPredicate(field="variant", equal=variant))
            .encode(x=x, y=y, text=alt.Text("concurrency:Q"))
            for variant, (dx, dy) in zip(
                figure.variants, itertools.cycle([(7, -7), (-7, 8)]), strict=False
            )
            for colour in [looks[variant].colour]
        ),
    ]


def _latency(figure: Figure, looks: Looks) -> list[alt.Chart]:
    values = [v for r in figure.means for v in (r["p50"], r["p99"]) if v]
    logarithmic = bool(values) and max(values) / min(values) > LOG_SPAN
    if logarithmic:
        low, high = min(values) / 1.2, max(values) * 1.2
        scale = alt.Scale(type="log", domain=[low, high], nice=False)
        y = _y(f"{figure.unit}, log scale", scale, alt.Axis(values=_ticks(low, high), format=",~r"))
    else:
        y = _y(figure.unit, alt.Scale(zero=True))
    layers = _lines(figure, looks, y("p50"), "latency")
    if rows := [r for r in figure.means if r["p99"] is not None]:
        base = _data(rows)
        layers += [
            base.mark_line(strokeWidth=1, opacity=0.7).encode(
                x=_x(figure), y=y("p99"), **_look(figure, looks, "color", "strokeDash")
            ),
            base.mark_point(fill="var(--page)", size=40, opacity=1, strokeWidth=1.5).encode(
                x=_x(figure),
                y=y("p99"),
                tooltip=_tooltip("latency"),
                **_look(figure, looks, "color", "shape"),
            ),
        ]
    return layers


def _acceptance(figure: Figure, looks: Looks) -> list[alt.Chart]:
    top = max(r["value"] for r in figure.means)
    scale = alt.Scale(domain=[1, max(2.0, top * 1.08)], nice=False)
    y = _y("tokens a verification", scale)
    return _lines(figure, looks, y("value"), "acceptance")


_DRAWINGS: dict[str, Callable[[Figure, Looks], list[alt.Chart]]] = {
    "speedup": _speedup,
    "throughput": _throughput,
    "curve": _curve,
    "latency": _latency,
    "acceptance": _acceptance,
}
