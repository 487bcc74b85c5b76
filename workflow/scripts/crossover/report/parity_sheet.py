"""What differs between the arms of a comparison, by their servers' own account, in words."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossover.reasons import words
from crossover.report.figure import Table
from crossover.report.wording import (
    MISSING,
    Row,
    comparison_name,
    counted,
    joined,
    level_text,
    listed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from crossover.campaign import Campaign

EFFECTS = {
    "not_comparable": "makes the arms incomparable",
    "levels_left_out": "levels are left out",
    "caveat": "differs: a caveat",
    "speculation": "differs, as it should",
    "harmless": "differs, harmlessly",
    "unknown": "unknown",
    "same": "same",
}
"""In the order in which they are shown."""

EXPECTED = ("speculation", "harmless")


@dataclass(frozen=True)
class Sheet:
    """The parity of one comparison: `notable` rows are shown, the others are folded."""

    title: str
    summary: str
    notable: Table
    expected: Table
    same: Table


def sheet_of(verdict: Row, campaign: Campaign) -> Sheet | None:
    """The sheet of a verdict; None: parity was not judged."""
    parity = verdict["parity"]
    if parity is None:
        return None
    name = f"{comparison_name(verdict, campaign)}, {verdict['workload']}"
    order = list(EFFECTS)
    rows = sorted(parity["sheet"], key=lambda r: order.index(r["effect"]))
    columns = ["What", verdict["baseline"], verdict["variant"], "Effect"]
    cells = [(r["effect"], [_what(r["what"]), *_values(r), EFFECTS[r["effect"]]]) for r in rows]

    def table(caption: str, effects: Iterable[str]) -> Table:
        of_these = [c for e, c in cells if e in effects and c[1:3] != ["unknown"] * 2]
        return Table(caption=f"{caption}: {name}.", columns=columns, rows=of_these)

    return Sheet(
        title=name,
        summary=_summary(parity),
        notable=table(
            "What differs in a way that matters, or is not known of one",
            set(EFFECTS) - {*EXPECTED, "same"},
        ),
        expected=table("What differs as it should, or harmlessly", EXPECTED),
        same=table("What is the same in both arms", ["same"]),
    )


def _what(name: str) -> str:
    if name.startswith(("-", "$", "server:")):
        return name
    if name == "settings":
        return "settings are on record"
    return name.replace("_", " ").replace("kv ", "KV ")


def _values(row: Row) -> list[str]:
    """Both arms' values; an unknown one is called so, a flag that was not given has a dash."""
    given = row["what"].startswith(("-", "$", "server:"))
    missing = MISSING if row["known"] or given else "unknown"
    return [
        missing
        if (v := row[arm]) is None
        else "given"
        if v is True and row["what"].startswith("-")
        else _shown(v)
        for arm in ("baseline", "variant")
    ]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_shown(v)}" for k, v in value.items())
    if isinstance(value, list):
        return listed(map(_shown, value))
    return value if isinstance(value, str) else json.dumps(value)


def _summary(parity: Row) -> str:
    effects = [r["effect"] for r in parity["sheet"]]
    unknown = [_what(r["what"]) for r in parity["sheet"] if r["effect"] == "unknown"]
    bad = sum(effects.count(e) for e in ("not_comparable", "levels_left_out", "caveat"))
    facts = counted(len(effects) - len(unknown), "fact")
    parts = [
        f"Of {facts} known of both arms, {bad or 'none'} {'differ' if bad > 1 else 'differs'} in a "
        "way that matters."
    ]
    if unknown:
        parts.append(f"Known of one arm at most: {listed(unknown)}.")
    left_out: dict[str, list[str]] = defaultdict(list)
    for left in parity["levels_left_out"]:
        left_out[left["reason"]].append(level_text(left["level"]))
    for reason, levels in left_out.items():
        noun = "Level" if len(levels) == 1 else "Levels"
        verb = "is" if len(levels) == 1 else "are"
        parts.append(f"{noun} {joined(levels)} {verb} left out: {words(reason)}.")
    if agreement := parity["greedy_agreement"]:
        parts.append(
            f"{agreement['identical']:,} of {agreement['pairs']:,} pairs of answers at temperature 0 "
            "are identical."
        )
    return " ".join(parts)
