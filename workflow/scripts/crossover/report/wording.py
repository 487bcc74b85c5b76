"""Numbers and reasons in words. Missing is “–”, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossover.campaign import Campaign

Row = Mapping[str, Any]

MISSING = "–"

BADGES = {
    # verdict: (badge, kind); METHOD §4
    "equivalent": ("no difference", "even"),
    "variant_faster_throughout": ("faster throughout", "good"),
    "baseline_faster_throughout": ("slower throughout", "bad"),
    "crossover": ("crossover", "cross"),
    "multiple_crossovers": ("several crossovers", "cross"),
    "inconclusive": ("cannot tell", "unsure"),
    "not_comparable": ("not comparable", "unsure"),
}
LABELS = {"+": "faster", "-": "slower", "?": "cannot tell", None: "not repeated"}


def number(value: float | None) -> str:
    """About three significant digits, with thousands separators; "–" if missing."""
    if value is None:
        return MISSING
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:,.{decimals}f}"


def milliseconds(value_s: float | None) -> str:
    """Seconds as milliseconds."""
    return MISSING if value_s is None else number(value_s * 1000)


def ratio(value: float | None, lo: float | None = None, hi: float | None = None) -> str:
    """`1.234 [1.100–1.380]`; the bounds are left out if they are not known."""
    if value is None:
        return MISSING
    if lo is None or hi is None:
        return f"{value:.3f}"
    return f"{value:.3f} [{lo:.3f}–{hi:.3f}]"


def level_number(value: float | None) -> str:
    """A concurrency: whole numbers as such, others with one decimal below 100."""
    if value is None:
        return MISSING
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def moment(unix_s: float | None) -> str:
    """Unix seconds as date and time in UTC."""
    if unix_s is None:
        return MISSING
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def listed(values: Iterable[Any]) -> str:
    """`1, 4, 16`; "–" if there is none."""
    return ", ".join(str(v) for v in values) or MISSING


def counted(n: int, thing: str) -> str:
    """`1 trial`, `3 trials`."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def crossing_words(crossing: Row, campaign: Campaign) -> str:
    """A crossing with its interval; unlike the verdict's sentence not rounded to whole levels."""
    lo, hi = map(level_number, crossing["ci"])
    a, b = crossing["bracket"]
    confidence = f"{campaign.analysis.confidence * 100:g} %"
    between = f"between the tested levels {a} and {b}"
    where = f"{between}; provisional" if crossing["coarse"] else f"interpolated {between}"
    return f"C* = {level_number(crossing['c_star'])} ({confidence} interval {lo} to {hi}), {where}"


def level_ratio(level: Row) -> str:
    """A level of a verdict: its ratio, bounds and concurrency."""
    return f"{ratio(level['ratio'], level['lo'], level['hi'])} at {level['concurrency']}"


def comparison_name(verdict: Row, campaign: Campaign) -> str:
    """A comparison's name: the variant's, with the reference where that is not the baseline."""
    if verdict["baseline"] == campaign.baseline:
        return verdict["variant"]
    return f"{verdict['variant']} against {verdict['baseline']}"


def engine_name(engine: str | None, version: str | None) -> str:
    """The engine with its version, which may name the engine itself."""
    if engine and version and not version.startswith(engine):
        return f"{engine} {version}"
    return version or engine or MISSING


def session_name(session: Row) -> str:
    """A session as warnings and lists call it."""
    return f"{session['variant']}, trial {session['trial']}, {session['session_id']}"
