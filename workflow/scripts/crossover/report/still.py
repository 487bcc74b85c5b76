"""Speed-up charts as one PNG, for chats and pull requests, which show no web page.

The page's own drawings, in its light colours and with a legend in the picture.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import altair as alt
import vl_convert

from crossover.report import charts, theme

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crossover.report.figure import Figure

WIDTH = 720
"""Of a chart in CSS pixels."""

PIXELS_PER_PIXEL = 2
"""Of the picture's to CSS's: sharp on a dense display."""

LIGHT = {name: tones[0] for name, tones in {**theme.PAGE_COLOURS, **theme.SERIES_COLOURS}.items()}
LEGEND = {
    "orient": "top",
    "title": None,
    "symbolOpacity": 1,
    "symbolStrokeWidth": 0,
    "labelFontSize": 12,
}


def png(figures: Sequence[Figure], looks: charts.Looks, if_none: str) -> bytes:
    """The figures one below the other; one with nothing to draw is a line that says why.

    Args:
        figures: may be empty.
        looks: of all variants that they show.
        if_none: what the picture says where there are no figures.
    """
    picture = {
        "$schema": alt.SCHEMA_URL,
        "config": {**theme.CHART_CONFIG, "background": "var(--page)", "padding": 16},
        "params": [{"name": "off", "value": []}],
        "vconcat": [_chart(figure, looks) for figure in figures] or [_words(if_none)],
        "spacing": 36,
        "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")},
    }
    return vl_convert.vegalite_to_png(_in_light_colours(picture), scale=PIXELS_PER_PIXEL)


def _chart(figure: Figure, looks: charts.Looks) -> dict[str, Any]:
    title = {"text": figure.title, "anchor": "start", "fontSize": 15, "color": "var(--ink)"}
    spec = charts.draw(figure, looks)
    if spec is None:
        return {**_words(figure.finding), "title": title}
    rows = spec.pop("datasets")
    del spec["params"], spec["autosize"]
    return {**_alone(spec, rows), "width": WIDTH, "title": title}


def _words(text: str) -> dict[str, Any]:
    mark = {"type": "text", "text": text, "fontSize": 13, "color": "var(--soft)"}
    return {"data": {"values": [{}]}, "mark": mark, "width": WIDTH}


def _alone(part: Any, rows: Mapping[str, Any]) -> Any:
    """Part of a spec with its rows in place of their names, and with the legend's place given."""
    if isinstance(part, list):
        return [_alone(item, rows) for item in part]
    if not isinstance(part, dict):
        return part
    if part.keys() == {"name"} and part["name"] in rows:
        return {"values": rows[part["name"]]}
    return {
        key: LEGEND if key == "legend" and item is None else _alone(item, rows)
        for key, item in part.items()
    }


def _in_light_colours(spec: Mapping[str, Any]) -> dict[str, Any]:
    text = re.sub(r"var\(--([\w-]+)\)", lambda name: LIGHT[name[1]], json.dumps(spec))
    return json.loads(text)
