"""Figures as Vega-Lite: one drawing a kind, nothing smoothed between measured levels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import altair as alt
import vl_convert
from altair.utils import schemapi

from crossover.report import between, curve_labels, theme
from crossover.report.marks import (
    Looks,
    crossings,
    lines,
    look,
    rows,
    span,
    ticks,
    tooltip,
    trials,
    x,
    y,
)

if TYPE_CHECKING:
    from crossover.report.figure import Figure

HEIGHTS = {
    "speedup": 320,
    "throughput": 260,
    "curve": 260,
    "latency": 200,
    "acceptance": 200,
    "positions": 200,
    "why": 240,
    "timeline": 220,
    "drift": 200,
}
LOG_SPAN = 20
"""Largest over smallest value from which a latency axis is logarithmic."""

TIMELINE_SYMBOLS = 300
"""About how many symbols the course of a point may have; with more bins, each stands for several."""

LABELLED_CROSSINGS = 2
"""Most crossings of which each is labelled in the drawing: more labels would lie on each other."""


def draw(figure: Figure, looks: Looks) -> dict[str, Any] | None:
    """The Vega-Lite spec of a figure, as wide as its place; None: there is nothing to draw.

    Altair checks against the schema of Vega-Lite what it makes, at every step and row by row, which
    takes most of a report's time; a test checks the same charts instead.
    """
    if not figure.means and not figure.trials:
        return None
    with schemapi.debug_mode(False):
        spec = _chart(figure, looks).to_dict(validate=False)
    del spec["config"]
    return _with_shared_data(spec)


def _chart(figure: Figure, looks: Looks) -> alt.LayerChart:
    parameters = [alt.param(name="off", value=[])]
    if figure.choice is not None:
        parameters.append(alt.param(name="chosen", value=figure.choice.first))
    layers = _DRAWINGS[figure.kind](figure, looks)
    return (
        alt.layer(*layers)
        .add_params(*parameters)
        .properties(
            width="container",
            height=HEIGHTS[figure.kind],
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        )
    )


def static_svg(spec: Mapping[str, Any], width: int) -> str:
    """The chart as an SVG of this width in pixels; its colours are the page's CSS variables."""
    return _compact(
        vl_convert.vegalite_to_svg({**spec, "width": width, "config": theme.CHART_CONFIG})
    )


_SUPERFLUOUS = re.compile(
    r'<path class="(?:background|foreground)"[^>]*?/>'
    r'| (?:pointer-events|aria-hidden|aria-roledescription|role|font-family|class|xmlns:xlink|version)="[^"]*"'
    r'| opacity="1"'
)
_LONG_NUMBER = re.compile(r"(\d+\.\d{2})\d+")


def _compact(svg: str) -> str:
    """The same drawing without what only an interactive one needs, to a hundredth of a pixel."""
    return _LONG_NUMBER.sub(r"\1", _SUPERFLUOUS.sub("", svg))


def _with_shared_data(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with each set of rows once, under `datasets`, instead of once a layer."""
    datasets: dict[str, list[dict[str, Any]]] = {}

    def named(part: Mapping[str, Any]) -> dict[str, Any]:
        if "data" not in part:  # drawn from the data of the whole chart
            return dict(part)
        values = part["data"]["values"]
        name = next((n for n, known in datasets.items() if known == values), f"rows{len(datasets)}")
        datasets[name] = values
        return {**part, "data": {"name": name}}

    layers = [named(layer) for layer in spec["layer"]]
    return {**named(spec), "layer": layers, "datasets": datasets}


# ------------------------------------------------------------------ drawings


def _speedup(figure: Figure, looks: Looks) -> list[alt.Chart]:
    low, high = span(figure)
    values = [
        v
        for row in (*figure.means, *figure.trials)
        for v in (row["ratio"], row.get("lo"), row.get("hi"))
        if v is not None
    ]
    margin = figure.margin or 0.0
    bottom, top = min(*values, 1 / (1 + margin)), max(*values, 1 + margin)
    room = 0.06 * (top - bottom)
    low_end, high_end = max(0.0, bottom - room), top + room * 2
    up = y("ratio", alt.Scale(domain=[low_end, high_end], zero=False, nice=False))
    layers = [
        rows([{"low": low, "high": high, "from": 1 / (1 + margin), "to": 1 + margin}])
        .mark_rect(color="var(--soft)", opacity=0.12)
        .encode(x=x(figure, "low"), x2="high:Q", y=up("from"), y2="to:Q"),
        *crossings(figure, looks),
        rows([{"at": 1.0}]).mark_rule(color="var(--ink)", strokeWidth=1).encode(y=up("at")),
        *_sides(figure, up, low_end, high_end),
        *_named_crossings(figure, up, high_end),
    ]
    if bounded := [r for r in figure.means if r["lo"] is not None and r["hi"] is not None]:
        # rules as well: a single level has no area
        layers += [
            rows(between.band(figure))
            .mark_area(opacity=0.14, line=False)
            .encode(x=x(figure), y=up("lo"), y2="hi:Q", **look(figure, looks, "color")),
            rows(bounded)
            .mark_rule(opacity=0.55, strokeWidth=1.5)
            .encode(x=x(figure), y=up("lo"), y2="hi:Q", **look(figure, looks, "color")),
        ]
    layers += trials(figure, looks, up("ratio"), "ratio")
    if figure.means:
        layers += lines(figure, looks, up("ratio"), "ratio", along=between.estimates(figure))
    return layers


def _sides(
    figure: Figure, up: Callable[[str], alt.Y], bottom: float, top: float
) -> list[alt.Chart]:
    """What lies above and below 1, in words at the left edge, where there is room for them."""
    low, _ = span(figure)
    worse = {"faster": "slower", "better": "worse"}[figure.unit]
    return [
        rows([{"at": 1.0, "x": low, "text": text}])
        .mark_text(align="left", dx=4, dy=dy, fontSize=11, color="var(--soft)")
        .encode(x=x(figure, "x"), y=up("at"), text="text:N")
        for text, dy, room in (
            (f"variant {figure.unit} ▲", -9, top - 1),
            (f"variant {worse} ▼", 11, 1 - bottom),
        )
        if room > 0.08 * (top - bottom)
    ]


def _named_crossings(figure: Figure, up: Callable[[str], alt.Y], top: float) -> list[alt.Chart]:
    """C* beside its rule: of two the lower one on its left, the higher one on its right."""
    low, high = span(figure)
    known = [c for c in figure.crossings if c["c_star"] is not None and low <= c["c_star"] <= high]
    if len(figure.crossings) > LABELLED_CROSSINGS:
        return []
    known.sort(key=lambda c: c["c_star"])
    if len(known) == 1:
        on_left = [known[0]["c_star"] > (low * high) ** 0.5]
    else:
        on_left = [i == 0 for i in range(len(known))]
    return [
        rows(
            [
                {
                    "variant": c["variant"],
                    "at": c["c_star"],
                    "top": top,
                    "text": c["said"].partition(" (")[0],
                }
            ]
        )
        .mark_text(
            align="right" if left else "left",
            dx=-5 if left else 5,
            dy=8,
            fontSize=11,
            color="var(--ink)",
        )
        .encode(x=x(figure, "at"), y=up("top"), text="text:N")
        for c, left in zip(known, on_left, strict=True)
    ]


def _throughput(figure: Figure, looks: Looks) -> list[alt.Chart]:
    up = y("tokens/s", alt.Scale(zero=True))
    layers = trials(figure, looks, up("value"), "throughput")
    return layers + (lines(figure, looks, up("value"), "mean") if figure.means else [])


def _curve(figure: Figure, looks: Looks) -> list[alt.Chart]:
    base = rows(figure.means)
    across = alt.X(
        "rate:Q",
        title="decode rate of one request (tokens/s)",
        scale=alt.Scale(zero=True),
        axis=alt.Axis(tickCount=6),
    )
    up = y("tokens/s of the server", alt.Scale(zero=True))("value")
    return [
        base.mark_line(strokeWidth=1.5).encode(
            x=across, y=up, order="level:Q", **look(figure, looks, "color", "strokeDash")
        ),
        base.mark_point(filled=True, opacity=1, size=80).encode(
            x=across,
            y=up,
            tooltip=tooltip(figure, "rates"),
            **look(figure, looks, "color", "shape"),
        ),
        *(
            rows(those)
            .mark_text(
                dx=dx, dy=dy, align="left" if dx > 0 else "right", fontSize=11, color="var(--ink)"
            )
            .encode(x=across, y=up, text=alt.Text("level:Q", format=",~g"))
            for (dx, dy), those in curve_labels.labels(figure).items()
            if those
        ),
    ]


def _latency(figure: Figure, looks: Looks) -> list[alt.Chart]:
    values = [v for r in figure.means for v in (r["p50"], r["p99"]) if v]
    logarithmic = bool(values) and max(values) / min(values) > LOG_SPAN
    if logarithmic:
        low, high = min(values) / 1.2, max(values) * 1.2
        scale = alt.Scale(type="log", domain=[low, high], nice=False)
        up = y(f"{figure.unit}, log scale", scale, alt.Axis(values=ticks(low, high), format=",~r"))
    else:
        up = y(figure.unit, alt.Scale(zero=True))
    layers = lines(figure, looks, up("p50"), "latency")
    if tail := [r for r in figure.means if r["p99"] is not None]:
        base = rows(tail)
        layers += [
            base.mark_line(strokeWidth=1, opacity=0.7).encode(
                x=x(figure), y=up("p99"), **look(figure, looks, "color", "strokeDash")
            ),
            base.mark_point(fill="var(--page)", size=40, opacity=1, strokeWidth=1.5).encode(
                x=x(figure),
                y=up("p99"),
                tooltip=tooltip(figure, "latency"),
                **look(figure, looks, "color", "shape"),
            ),
        ]
    return layers


def _acceptance(figure: Figure, looks: Looks) -> list[alt.Chart]:
    top = max(r["value"] for r in figure.means)
    scale = alt.Scale(domain=[1, max(2.0, top * 1.08)], nice=False)
    return lines(figure, looks, y("tokens a verification", scale)("value"), "acceptance")


def _positions(figure: Figure, looks: Looks) -> list[alt.Chart]:
    last = max(r["position"] for r in figure.means)
    across = alt.X(
        "position:Q",
        title="position in the draft",
        scale=alt.Scale(domain=[0.75, last + 0.25], nice=False),
        axis=alt.Axis(values=list(range(1, last + 1)), format="d"),
    )
    up = y("share accepted", alt.Scale(domain=[0, 1]), alt.Axis(format="%", tickCount=5))("value")
    base = rows(figure.means)
    return [
        base.mark_line(strokeWidth=1.5, opacity=0.7).encode(
            x=across, y=up, detail="level:Q", **look(figure, looks, "color", "strokeDash")
        ),
        base.mark_point(filled=True, opacity=0.8, size=45).encode(
            x=across,
            y=up,
            tooltip=tooltip(figure, "accepted", alt.Tooltip("position:Q")),
            **look(figure, looks, "color", "shape"),
        ),
    ]


def _why(figure: Figure, looks: Looks) -> list[alt.Chart]:
    values = [v for r in figure.means for v in (r["yields"], r["cost"], r["lo"], r["hi"]) if v]
    top = max(values) * 1.08
    up = y("tokens or plain steps", alt.Scale(domain=[0, top], nice=False))
    base = rows(figure.means)
    layers = crossings(figure, looks)
    if band := [r for r in figure.means if r["lo"] is not None and r["hi"] is not None]:
        layers += [
            rows(band)
            .mark_area(color="var(--soft)", opacity=0.2, line=False)
            .encode(x=x(figure), y=up("lo"), y2="hi:Q"),
            rows(band)
            .mark_rule(color="var(--soft)", strokeWidth=1.5)
            .encode(x=x(figure), y=up("lo"), y2="hi:Q"),
        ]
    said = tooltip(figure, "a step")
    layers += [
        base.mark_line(strokeWidth=2, strokeDash=[6, 4], color="var(--ink)").encode(
            x=x(figure), y=up("cost")
        ),
        base.mark_point(
            filled=True, opacity=1, size=60, shape="diamond", color="var(--ink)"
        ).encode(x=x(figure), y=up("cost"), tooltip=said),
        base.mark_line(strokeWidth=2).encode(
            x=x(figure), y=up("yields"), **look(figure, looks, "color")
        ),
        base.mark_point(filled=True, opacity=1, size=80).encode(
            x=x(figure), y=up("yields"), tooltip=said, **look(figure, looks, "color", "shape")
        ),
    ]
    return layers + _named_lines(figure, up)


def _named_lines(figure: Figure, up: Callable[[str], alt.Y]) -> list[alt.Chart]:
    """Both lines named at their first level, on the side where they leave each other room."""
    first = figure.means[0]
    above = first["yields"] >= first["cost"]
    return [
        rows([{"variant": first["variant"], "level": first["level"], "at": value, "text": text}])
        .mark_text(align="left", dx=8, dy=-11 if over else 13, fontSize=11, color="var(--ink)")
        .encode(x=x(figure), y=up("at"), text="text:N")
        for value, text, over in (
            (first["yields"], "tokens it yields", above),
            (first["cost"], "plain steps it costs", not above),
        )
    ]


_AT_TIME = alt.X("t:Q", title="seconds since the load began", axis=alt.Axis(tickCount=8))
_IS_CHOSEN = "datum.key === chosen"
_IN_WINDOW = "datum.t - datum.bin / 2 >= datum.start && datum.t + datum.bin / 2 <= datum.end"


def _timeline(figure: Figure, looks: Looks) -> list[alt.Chart]:
    up = y("tokens/s", alt.Scale(zero=True))("value")
    chosen = rows(figure.means).transform_filter(_IS_CHOSEN)
    series = chosen.transform_flatten(["t", "value"])
    edges = chosen.transform_fold(["start", "end"], as_=["edge", "t"])
    drawn = sum(len(r["t"]) for r in figure.means if r["key"] == figure.choice.first)
    every = -(-drawn // TIMELINE_SYMBOLS)
    return [
        edges.mark_rule(strokeDash=[3, 3], strokeWidth=1, opacity=0.8).encode(
            x=_AT_TIME, **look(figure, looks, "color")
        ),
        series.mark_line(strokeWidth=1, opacity=0.45).encode(
            x=_AT_TIME, y=up, **look(figure, looks, "color")
        ),
        series.transform_filter(_IN_WINDOW)
        .mark_line(strokeWidth=2.25)
        .encode(x=_AT_TIME, y=up, **look(figure, looks, "color")),
        series.transform_filter(f"floor(datum.t / datum.bin) % {every} === 0")
        .mark_point(filled=True, opacity=0.9, size=26)
        .encode(
            x=_AT_TIME,
            y=up,
            tooltip=[
                alt.Tooltip("variant:N"),
                alt.Tooltip("t:Q", title="second", format=".1f"),
                alt.Tooltip("value:Q", title="tokens/s", format=",.4~r"),
                alt.Tooltip("said:N", title="mean"),
            ],
            **look(figure, looks, "color", "shape"),
        ),
    ]


def _drift(figure: Figure, looks: Looks) -> list[alt.Chart]:
    values = [r["value"] for r in figure.means]
    reach = max(1.0, *(abs(v) * 1.15 for v in values))
    last = max(r["hours"] for r in figure.means)
    unit, factor = ("minutes", 60) if last < 2 else ("hours", 1)
    across = alt.X(
        "time:Q",
        title=f"{unit} since the first session started",
        scale=alt.Scale(domain=[-0.03 * last * factor, 1.03 * last * factor or 1], nice=False),
    )
    up = y("% of the variant's mean", alt.Scale(domain=[-reach, reach], nice=False))
    base = rows(figure.means).transform_calculate(time=f"datum.hours * {factor}")
    return [
        rows([{"at": 0.0}]).mark_rule(color="var(--ink)", strokeWidth=1).encode(y=up("at")),
        base.mark_line(strokeWidth=1, opacity=0.6).encode(
            x=across, y=up("value"), **look(figure, looks, "color", "strokeDash")
        ),
        base.mark_point(filled=True, opacity=1, size=70).encode(
            x=across,
            y=up("value"),
            tooltip=[
                alt.Tooltip("variant:N"),
                alt.Tooltip("trial:Q"),
                alt.Tooltip("said:N", title="against its mean"),
            ],
            **look(figure, looks, "color", "shape"),
        ),
    ]


_DRAWINGS: dict[str, Callable[[Figure, Looks], list[alt.Chart]]] = {
    "speedup": _speedup,
    "throughput": _throughput,
    "curve": _curve,
    "latency": _latency,
    "acceptance": _acceptance,
    "positions": _positions,
    "why": _why,
    "timeline": _timeline,
    "drift": _drift,
}
