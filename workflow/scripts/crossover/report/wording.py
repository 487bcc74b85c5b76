"""Numbers and reasons in words. Missing is “–”, never 0."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from crossover.verdict_metrics import METRICS
from crossover.verdict_sentence import NOT_SPEEDS

if TYPE_CHECKING:
    from crossover.campaign import Campaign

Row = Mapping[str, Any]

MISSING = "–"


class Unit(NamedTuple):
    """How a metric's values are shown: times `factor`, in `name`."""

    name: str
    factor: float = 1.0


UNITS = {
    "output_throughput": Unit("tokens/s"),
    "decode_rate": Unit("tokens/s"),
    "ttft": Unit("ms", 1000.0),
    "goodput": Unit("requests/s"),
    "throughput_per_joule": Unit("tokens/J"),
}

BADGES = {
    # verdict: (badge, kind)
    "equivalent": ("no difference", "even"),
    "variant_faster_throughout": ("faster throughout", "good"),
    "baseline_faster_throughout": ("slower throughout", "bad"),
    "crossover": ("crossover", "cross"),
    "multiple_crossovers": ("several crossovers", "cross"),
    "inconclusive": ("cannot tell", "unsure"),
    "not_comparable": ("not comparable", "unsure"),
}
_LABELS = {"+": "faster", "-": "slower", "?": "cannot tell", None: "not repeated"}

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text without a terminal's escape sequences (colours, titles) and control characters."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def title_of(metric: str) -> str:
    """A metric's name as a reader knows it."""
    return METRICS[metric].title


def badge_of(verdict: Row) -> tuple[str, str]:
    """(badge, kind) of a verdict."""
    badge, kind = BADGES[verdict["verdict"]]
    return _of_metric(badge, verdict["metric"]), kind


def label_words(label: str | None, metric: str) -> str:
    """What a level's label says of the variant."""
    return _of_metric(_LABELS[label], metric)


def _of_metric(text: str, metric: str) -> str:
    if metric not in NOT_SPEEDS:
        return text
    return text.replace("faster", "better").replace("slower", "worse")


def number(value: float | None) -> str:
    """About three significant digits, with thousands separators; "–" if missing."""
    if value is None:
        return MISSING
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 or size == 0 else 4
    return f"{value:,.{decimals}f}"


def in_unit(value: float | None, metric: str) -> str:
    """A metric's value in the unit in which it is shown."""
    return MISSING if value is None else number(value * UNITS[metric].factor)


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


def percent(share: float, decimals: int = 1) -> str:
    """A relative change with its sign."""
    return f"{100 * share:+.{decimals}f}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")


def level_text(value: float) -> str:
    """A tested level, as it was given."""
    return f"{value:g}"


def level_number(value: float | None) -> str:
    """A place on the axis: whole numbers as such, others with one decimal below 100."""
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


def joined(values: Iterable[str]) -> str:
    """`plain`, `plain and ngram-3`, `plain, ngram-3 and ngram-5`."""
    *first, last = values
    return f"{', '.join(first)} and {last}" if first else last


def counted(n: int, thing: str) -> str:
    """`1 trial`, `3 trials`."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def crossing_words(crossing: Row, campaign: Campaign) -> str:
    """A crossing with its interval; unlike the verdict's sentence not rounded to whole levels."""
    lo, hi = map(level_number, crossing["ci"])
    a, b = map(level_text, crossing["bracket"])
    confidence = f"{campaign.analysis.confidence * 100:g} %"
    between = f"between the tested levels {a} and {b}"
    where = f"{between}; provisional" if crossing["coarse"] else f"interpolated {between}"
    return f"C* = {level_number(crossing['c_star'])} ({confidence} interval {lo} to {hi}), {where}"


def level_ratio(level: Row) -> str:
    """A level of a verdict: its ratio, bounds and place."""
    return f"{ratio(level['ratio'], level['lo'], level['hi'])} at {level_text(level['level'])}"


def with_ratio(verdict: Row) -> list[Row]:
    """The levels of a verdict whose ratio is a number."""
    return [n for n in verdict["levels"] if n["ratio"] is not None]


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


def engine_names(sessions: Iterable[Row]) -> list[str]:
    """The engines of sessions; one whose server never told its version is the others' engine."""
    found = {(s["engine"], s["engine_version"]) for s in sessions if s["engine"]}
    told = {engine for engine, version in found if version}
    return sorted(engine_name(*e) for e in found if e[1] or e[0] not in told)


def commit_words(commit: str) -> str:
    """A commit as provenance records it, in which `+` stands for a changed working tree."""
    return f"{commit[:-1]} with uncommitted changes" if commit.endswith("+") else commit


def session_name(session: Row) -> str:
    """A session as warnings and lists call it."""
    return f"{session['variant']}, trial {session['trial']}, {session['session_id']}"
