"""What differs between the arms of a comparison, by their servers' own account, in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossover.reasons import words
from crossover.report.figure import Table
from crossover.report.wording import MISSING, Row, comparison_name, counted, level_text, listed

if TYPE_CHECKING:
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


@dataclass(frozen=True)
class Sheet:
    """The parity of one comparison: `notable` rows first, then what is the same."""

    title: str
    summary: str
    notable: Table
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
    return Sheet(
        title=name,
        summary=_summary(parity),
        notable=Table(
            caption=f"What differs between the arms, or is not known of one: {name}.",
            columns=columns,
            rows=[c for effect, c in cells if effect != "same" and c[1:3] != ["unknown"] * 2],
        ),
        same=Table(
            caption=f"What is the same in both arms: {name}.",
            columns=columns,
            rows=[c for effect, c in cells if effect == "same"],
        ),
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
    return [missing if (v := row[arm]) is None else _shown(v) for arm in ("baseline", "variant")]


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
        parts.append(f"Not known of both: {listed(unknown)}.")
    for left in parity["levels_left_out"]:
        parts.append(f"Level {level_text(left['level'])} is left out: {words(left['reason'])}.")
    if agreement := parity["greedy_agreement"]:
        parts.append(
            f"{agreement['identical']:,} of {agreement['pairs']:,} pairs of answers at temperature 0 "
            "are identical."
        )
    return " ".join(parts)
