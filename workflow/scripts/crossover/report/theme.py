"""How a variant looks wherever it is drawn, and the colours of the page in light and dark.

Charts name colours by CSS variable, so one drawing serves light, dark and print: the page's
style sheet decides. Hues are Okabe and Ito's (distinct for colour-blind readers); a tone that
would have less than 3:1 against its background is deepened (light) or lightened (dark). Shape
and dash tell variants apart without colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE_COLOURS = {
    # name: (light, dark)
    "page": ("#ffffff", "#15181c"),
    "panel": ("#f6f7f8", "#1d2126"),
    "ink": ("#1b1f24", "#e6e8eb"),
    "soft": ("#59636e", "#a3adb8"),
    "line": ("#d5dae0", "#363d45"),
    "grid": ("#e6e9ed", "#2a3037"),
    "link": ("#0b5cad", "#7db8f0"),
    "good": ("#00684c", "#4cc79d"),
    "bad": ("#a84500", "#ff9b5e"),
    "unsure": ("#59636e", "#a3adb8"),
    "loud": ("#7a4a00", "#ffc766"),
    "loud-panel": ("#fff3d6", "#33290f"),
}

_TONES = (
    # (light, dark); the first is the baseline's
    ("#1b1f24", "#e6e8eb"),  # black
    ("#0072b2", "#3f9fdc"),  # blue
    ("#d55e00", "#f0803c"),  # vermilion
    ("#00805d", "#22b88d"),  # bluish green
    ("#b0558a", "#dd94bd"),  # reddish purple
    ("#a87300", "#e69f00"),  # orange
    ("#2b87bd", "#7cc8f2"),  # sky blue
)
SERIES_COLOURS = {f"series-{i}": tone for i, tone in enumerate(_TONES)}

_SHAPES = (
    # SVG paths in the square from -1 to 1
    "M-.85,0A.85,.85,0,1,1,.85,0A.85,.85,0,1,1,-.85,0Z",  # disc
    "M-.75,-.75H.75V.75H-.75Z",  # square
    "M0,-.95L.95,.75H-.95Z",  # triangle up
    "M0,-1L.85,0L0,1L-.85,0Z",  # diamond
    "M0,.95L.95,-.75H-.95Z",  # triangle down
    "M-.3,-.9H.3V-.3H.9V.3H.3V.9H-.3V.3H-.9V-.3H-.3Z",  # cross
    "M.95,0L-.75,.95V-.95Z",  # triangle right
)
_DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [12, 3], [6, 2, 2, 2, 2, 2])


@dataclass(frozen=True)
class Look:
    """Colour (a CSS expression), symbol (an SVG path in the square -1…1) and dash of a variant."""

    colour: str
    shape: str
    dash: tuple[int, ...]


def looks(variants: Iterable[str], baseline: str) -> dict[str, Look]:
    """The look of each variant: the baseline's is fixed, the others' follow their order.

    With more variants than hues, hues repeat with another dash.
    """
    hues, dashes = len(_TONES) - 1, len(_DASHES) - 1
    result = {baseline: Look("var(--series-0)", _SHAPES[0], tuple(_DASHES[0]))}
    for i, name in enumerate(v for v in variants if v != baseline):
        turn = i // hues
        result[name] = Look(
            f"var(--series-{i % hues + 1})",
            _SHAPES[i % hues + 1],
            tuple(_DASHES[(i + turn) % dashes + 1]),
        )
    return result


CHART_CONFIG: dict[str, Any] = {
    "aria": False,  # the page labels each chart as one image and has the numbers in a table
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "titlePadding": 8,
        "labelFontSize": 12,
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "gridColor": "var(--grid)",
        "labelOverlap": "greedy",
    },
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False, "tickCount": 6, "titleAnchor": "end"},
}
"""Vega-Lite configuration of every chart."""
