"""Where the levels beside the symbols of a curve can stand without lying on something drawn."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from crossover.report.figure import Figure

Offset = tuple[int, int]
"""(right, down) of a symbol, in pixels"""

OFFSETS: tuple[Offset, ...] = ((7, -7), (-7, -7), (7, 9), (-7, 9))
"""In the order in which they are tried."""

PLOT = (800, 225)
"""Pixels of the plot on a wide screen; on a narrow one the labels lie closer."""

LETTER, LINE, SYMBOL = 7, 12, 10
"""Pixels of a figure's width, a label's height, a symbol's width."""


def labels(figure: Figure) -> dict[Offset, list[dict[str, Any]]]:
    """The rows that have room for their level, by where it stands; the ends come first."""
    at = _places(figure)
    drawn = _drawn(figure, at)
    found: dict[Offset, list[dict[str, Any]]] = {offset: [] for offset in OFFSETS}
    for i in _ends_first(figure):
        row = figure.means[i]
        width = LETTER * len(f"{row['level']:g}")
        for offset in OFFSETS:
            box = _box(at[i], offset, width)
            if _in_plot(box) and not _inside(drawn, box).any():
                found[offset].append(row)
                drawn = np.vstack([drawn, _grid(box)])
                break
    return found


def _places(figure: Figure) -> np.ndarray:
    """Pixels of the symbols, from the upper left corner; both axes begin at 0."""
    values = np.array([[r["rate"], r["value"]] for r in figure.means], dtype=float)
    right, up = (values / np.maximum(values.max(axis=0), np.finfo(float).tiny)).T
    return np.column_stack([right, 1 - up]) * PLOT


def _drawn(figure: Figure, at: np.ndarray) -> np.ndarray:
    """Pixels of all symbols and, a few apart, of the lines between them."""
    reach = SYMBOL / 2
    found = [_grid((x - reach, y - reach, x + reach, y + reach)) for x, y in at]
    for mine in _series(figure):
        for a, b in itertools.pairwise(mine):
            found.append(np.linspace(at[a], at[b], 2 + int(np.abs(at[b] - at[a]).max() // 4)))
    return np.vstack(found)


def _ends_first(figure: Figure) -> list[int]:
    ends = {i for mine in _series(figure) for i in (mine[0], mine[-1])}
    return sorted(range(len(figure.means)), key=lambda i: i not in ends)


def _series(figure: Figure) -> list[list[int]]:
    """The rows of each variant, whose levels ascend."""
    by_variant = itertools.groupby(range(len(figure.means)), lambda i: figure.means[i]["variant"])
    return [list(mine) for _, mine in by_variant]


def _box(at: np.ndarray, offset: Offset, width: float) -> tuple[float, float, float, float]:
    """(left, top, right, bottom) of a label."""
    x, y = at + offset
    left = x if offset[0] > 0 else x - width
    return left, y - LINE / 2, left + width, y + LINE / 2


def _in_plot(box: tuple[float, float, float, float]) -> bool:
    left, _, right, bottom = box
    return left >= 0 and right <= PLOT[0] + LETTER and bottom <= PLOT[1]


def _inside(points: np.ndarray, box: tuple[float, float, float, float]) -> np.ndarray:
    left, top, right, bottom = box
    x, y = points.T
    return (left < x) & (x < right) & (top < y) & (y < bottom)


def _grid(box: tuple[float, float, float, float]) -> np.ndarray:
    """Pixels of a box, close enough that no label lies between them."""
    left, top, right, bottom = box
    across = np.linspace(left, right, 2 + int((right - left) // 4))
    down = np.linspace(top, bottom, 2 + int((bottom - top) // 4))
    return np.stack(np.meshgrid(across, down), axis=-1).reshape(-1, 2)
