"""A figure: what is drawn, its caption, and its finding as alt text; no drawing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossover.axis import Axis
    from crossover.report.levels import Level


@dataclass(frozen=True)
class Table:
    """A table: the first `heads` cells of a row are its row headers, `numeric` are right-aligned."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    heads: int = 1
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Choice:
    """What of a figure's rows is shown: those whose `key` is chosen; `options` are (key, words)."""

    label: str
    options: list[tuple[str, str]]
    first: str


@dataclass(frozen=True)
class Figure:
    """One chart: what is drawn (`kind` picks the drawing) and the finding as its alt text.

    Every row has `variant`, and `said`: its value as a tooltip words it; most have `level`.
    """

    kind: str
    slug: str
    title: str
    note: str
    finding: str
    axis: Axis
    variants: list[str]
    levels: list[float]
    means: list[dict[str, Any]] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)
    crossings: list[dict[str, Any]] = field(default_factory=list)
    margin: float | None = None
    unit: str = ""
    metric: str | None = None
    """of a figure that there is one of for each metric"""
    choice: Choice | None = None
    table: Table | None = None
    """the same in figures, where no other table on the page has them"""


def figure_of(
    kind: str, workload: str, levels: Sequence[Level], *, axis: Axis, **rest: Any
) -> Figure:
    """A figure of these levels; its variants are theirs unless given."""
    rest.setdefault("slug", f"{kind}-{workload}")
    rest.setdefault("variants", list(dict.fromkeys(n.variant for n in levels)))
    return Figure(kind=kind, axis=axis, levels=sorted({n.level for n in levels}), **rest)
