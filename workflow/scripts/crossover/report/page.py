"""The page: the view and its charts poured into one HTML file that loads nothing.

The security policy forbids every request and every script but the two whose hashes it names,
so even a name that escaped its escaping could not run.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import vl_convert
from markupsafe import Markup

from crossover.report import charts, theme, view
from crossover.report.wording import printable

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pandas as pd
    import pyarrow as pa

    from crossover.campaign import Campaign
    from crossover.report.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
WIDTHS = {"latency": 290, "acceptance": 420, "positions": 420, "why": 420}
WIDE = 880
"""Widths of the static charts in pixels, by kind and of all others."""


def render(
    points: pa.Table | pd.DataFrame,
    sessions: pa.Table | pd.DataFrame,
    verdicts: Mapping[str, Any],
    policy: Mapping[str, Any],
    *,
    campaign: Campaign,
    provenance: Mapping[str, Any],
    generated_at: str,
    requests: str | os.PathLike[str] | None = None,
) -> str:
    """The report as HTML; the same arguments give the same bytes.

    Args:
        points: one row a point, columns as in records.POINTS.
        sessions: one row a life of a server, columns as in records.SESSIONS.
        verdicts: what verdicts.json holds.
        policy: what policy.json holds.
        campaign: the campaign that the report is about; says what should have been measured.
        provenance: commands, versions, hardware, commit, config_sha256, config_text, dates;
            whatever is there is shown.
        generated_at: when the report was made, as it is to be printed.
        requests: Parquet file of records.REQUESTS; without it the page has neither the course of
            a point nor single trials' goodput, nor what failed requests were told.
    """
    contents = view.prepare(
        points,
        sessions,
        verdicts,
        policy,
        campaign=campaign,
        provenance=provenance,
        generated_at=generated_at,
        requests=requests,
    )
    looks = theme.looks(contents.variants, campaign.baseline)
    runtime, behaviour = _runtime(), (TEMPLATES / "page.js").read_text()
    return (
        _environment()
        .get_template("page.html")
        .render(
            view=contents,
            drawings={figure.slug: _drawing(figure, looks) for figure in contents.figures},
            looks=looks,
            colours={**theme.PAGE_COLOURS, **theme.SERIES_COLOURS},
            chart_config=theme.CHART_CONFIG,
            style=Markup((TEMPLATES / "page.css").read_text()),
            scripts=[Markup(runtime), Markup(behaviour)],
            script_hashes=[_hash(runtime), _hash(behaviour)],
        )
    )


def _drawing(figure: Figure, looks: charts.Looks) -> dict[str, Any] | None:
    spec = charts.draw(figure, looks)
    if spec is None:
        return None
    width = WIDTHS.get(figure.kind, WIDE)
    return {"spec": spec, "svg": Markup(charts.static_svg(spec, width))}


@functools.cache
def _runtime() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, with the interpreter that needs no eval."""
    return vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=_printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: Any) -> Any:
    """Text from outside without terminal sequences; what is marked up already is our own."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
