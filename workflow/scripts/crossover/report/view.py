"""What the report says: plain data and wording, no HTML and no drawing.

Levels are means over a level's valid trials; charts and tables are made from the same levels,
so they cannot disagree. Missing is None here and "–" on the page, never 0.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crossover import records

if TYPE_CHECKING:
    import pandas as pd

    from crossover.campaign import Campaign

MISSING = "–"
FEW_TRIALS = 3
"""Trials below which a verdict is called provisional (METHOD §1)."""

Row = Mapping[str, Any]

BADGES = {
    # verdict: (badge, kind); METHOD §4
    "equivalent": ("no difference", "even"),
    "variant_faster_throughout": ("faster throughout", "good"),
    "baseline_faster_throughout": ("slower throughout", "bad"),
    "crossover": ("crossover", "cross"),
    "multiple_crossovers": ("several crossovers", "cross"),
    "inconclusive": ("cannot tell", "unsure"),
}
LABELS = {"+": "faster", "-": "slower", "−": "slower", "?": "cannot tell"}
CODES = {
    "crossing_within_margin": "it crosses, but the difference on one side is within the margin",
    "client_limited": "the load client was at its limit",
    "errors": "too many requests failed",
    "front_end_limited": "the server's front end was at its limit",
    "not_stationary": "the throughput drifted over the window",
    "operational_law_violated": "the throughput falls where more load should not lower it",
    "queue_limited": "requests queued in the server: fewer ran than the level says",
    "single_repeat": "one trial only",
    "too_short": "too few answers in the window",
    "zero_throughput": "no tokens in the window",
}


@dataclass(frozen=True)
class Level:
    """All trials of one variant × workload × concurrency."""

    variant: str
    workload: str
    concurrency: int
    valid: tuple[Row, ...]
    invalid: tuple[Row, ...]

    def mean(self, column: str) -> float | None:
        """Mean of a column over the valid trials that have it; None: none has."""
        values = [p[column] for p in self.valid if p[column] is not None]
        return sum(values) / len(values) if values else None

    def total(self, column: str) -> int | None:
        """Sum of a column over all trials that have it, valid or not; None: none has."""
        values = [p[column] for p in (*self.valid, *self.invalid) if p[column] is not None]
        return sum(values) if values else None


@dataclass(frozen=True)
class Card:
    """One verdict: `facts` are (term, value) pairs in words."""

    title: str
    workload: str
    badge: str
    kind: str
    sentence: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class Caution:
    """What limits the results: a heading and one line an item."""

    title: str
    items: list[str]
    serious: bool = False


@dataclass(frozen=True)
class Figure:
    """One chart: what is drawn (`kind` picks the drawing) and the finding as its alt text.

    Every row has `variant` (whose look it has), `series` (its name) and `concurrency`.
    """

    kind: str
    slug: str
    title: str
    note: str
    finding: str
    series: list[tuple[str, str]]
    levels: list[int]
    means: list[dict[str, Any]] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)
    crossings: list[dict[str, Any]] = field(default_factory=list)
    margin: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """A table: the first `heads` cells of a row are its row headers, `numeric` are right-aligned."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    heads: int = 1
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class WorkloadView:
    """One workload's section."""

    name: str
    description: str
    figures: list[Figure]
    policy: dict[str, Any] | None
    table: Table


@dataclass(frozen=True)
class Download:
    """A file inside the page."""

    name: str
    label: str
    uri: str


@dataclass(frozen=True)
class View:
    """The whole page, top to bottom."""

    title: str
    facts: list[tuple[str, str]]
    rehearsal: bool
    cards: list[Card]
    no_cards: str
    warnings: list[Caution]
    workloads: list[WorkloadView]
    failures: Table | None
    sessions: Table
    session_details: list[tuple[str, list[tuple[str, str]]]]
    method: list[str]
    provenance: list[tuple[str, Any]]
    downloads: list[Download]
    files: list[tuple[str, str]]
    generated_at: str


def prepare(
    points: pa.Table | pd.DataFrame,
    sessions: pa.Table | pd.DataFrame,
    verdicts: Row,
    policy: Row,
    *,
    campaign: Campaign,
    provenance: Row,
    generated_at: str,
) -> View:
    """Turn the results into the page's contents; arguments as for `page.render`."""
    point_rows = _rows(points, records.POINTS)
    session_rows = sorted(
        _rows(sessions, records.SESSIONS),
        key=lambda s: (s["started_at"] is None, s["started_at"] or 0, s["session_id"] or ""),
    )
    levels = _levels(point_rows, campaign)
    judged = list(verdicts.get("verdicts") or [])
    engines = {v.engine for v in campaign.variants.values()} | {s["engine"] for s in session_rows}
    return View(
        title=campaign.name,
        facts=_headline(campaign, point_rows, session_rows),
        rehearsal="simulated" in engines,
        cards=[_card(v, verdicts, campaign) for v in judged],
        no_cards=_why_no_verdict(campaign, point_rows),
        warnings=_warnings(campaign, point_rows, session_rows, levels, judged),
        workloads=[
            _workload(name, campaign, levels, judged, verdicts, policy)
            for name in _ordered(campaign.workloads, (p["workload"] for p in point_rows))
        ],
        failures=_failures(point_rows),
        sessions=_session_table(session_rows, point_rows),
        session_details=[(_session_name(s), _session_details(s)) for s in session_rows],
        method=_method(campaign, verdicts),
        provenance=_provenance(provenance),
        downloads=_downloads(point_rows, verdicts, policy, provenance, campaign),
        files=[
            (f"results/{campaign.name}/points.parquet", "one row a point, units in the names"),
            (f"results/{campaign.name}/requests.parquet", "one row a request"),
            (f"results/{campaign.name}/sessions.parquet", "one row a life of a server"),
            (f"results/{campaign.name}/verdicts.json", "the verdicts and their levels"),
            (f"results/{campaign.name}/policy.json", "which variant at which concurrency"),
        ],
        generated_at=generated_at,
    )


# ------------------------------------------------------------------ numbers and words


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
    """A concurrency: whole numbers as such, others with one decimal below 10."""
    if value is None:
        return MISSING
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def words(code: str) -> str:
    """A reason in words: known codes are explained, `code: detail` keeps its detail."""
    head, colon, detail = code.partition(":")
    if not re.fullmatch(r"[a-z0-9_]+", head):
        return code
    return CODES.get(head, head.replace("_", " ")) + colon + detail


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


# ------------------------------------------------------------------ reading


def _rows(table: pa.Table | pd.DataFrame, columns: Sequence[records.Column]) -> list[dict]:
    """Plain dicts with every column of the contract; NaN is missing."""
    if not isinstance(table, pa.Table):
        table = pa.Table.from_pandas(
            table, schema=records.arrow_schema(columns), preserve_index=False
        )
    blank = dict.fromkeys(c.name for c in columns)
    return [
        blank | {k: None if v != v else v for k, v in row.items()}  # only NaN differs from itself
        for row in table.to_pylist()
    ]


def _ordered(known: Iterable[str], found: Iterable[str]) -> list[str]:
    """The campaign's order, then whatever else the results hold, sorted."""
    known = list(known)
    return known + sorted(set(found) - set(known))


def _levels(points: Sequence[Row], campaign: Campaign) -> dict[tuple[str, str, int], Level]:
    """(variant, workload, concurrency) → Level, in the campaign's order of variants."""
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for p in points:
        groups[p["variant"], p["workload"], p["concurrency"]].append(p)
    order = _ordered(campaign.variants, (p["variant"] for p in points))
    return {
        key: Level(
            *key,
            valid=tuple(p for p in by_trial if p["valid"]),
            invalid=tuple(p for p in by_trial if not p["valid"]),
        )
        for key in sorted(groups, key=lambda k: (order.index(k[0]), k[1], k[2]))
        for by_trial in [sorted(groups[key], key=lambda p: (p["trial"], p["session_id"] or ""))]
    }


# ------------------------------------------------------------------ header and verdicts


def _headline(
    campaign: Campaign, points: Sequence[Row], sessions: Sequence[Row]
) -> list[tuple[str, str]]:
    engines = {(s["engine"], s["engine_version"]) for s in sessions if s["engine"]}
    engines = engines or {(v.engine, None) for v in campaign.variants.values()}
    times = [s["started_at"] for s in sessions if s["started_at"] is not None]
    times = times or [p["started_at"] for p in points if p["started_at"] is not None]
    days = sorted({moment(t)[:10] for t in times})
    measured = MISSING if not days else days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    trials = len({p["trial"] for p in points})
    return [
        ("Model", campaign.model.name),
        ("Engine", listed(sorted(" ".join(filter(None, e)) for e in engines))),
        ("Baseline", campaign.baseline),
        ("Measured", measured),
        (
            "Extent",
            f"{counted(len(points), 'point')} in {counted(len(sessions), 'session')}, "
            f"{counted(trials, 'trial')}",
        ),
    ]


def _name(verdict: Row, campaign: Campaign) -> str:
    """A comparison's name: the variant's, with the reference where that is not the baseline."""
    if verdict["baseline"] == campaign.baseline:
        return verdict["variant"]
    return f"{verdict['variant']} against {verdict['baseline']}"


def _card(verdict: Row, verdicts: Row, campaign: Campaign) -> Card:
    badge, kind = BADGES.get(verdict["verdict"], (words(verdict["verdict"]), "unsure"))
    return Card(
        title=f"{verdict['variant']} against {verdict['baseline']}",
        workload=verdict["workload"],
        badge=badge,
        kind=kind,
        sentence=verdict.get("sentence") or f"{_name(verdict, campaign)}: {badge}.",
        facts=list(_card_facts(verdict, verdicts, campaign)),
    )


def _card_facts(verdict: Row, verdicts: Row, campaign: Campaign) -> Iterable[tuple[str, str]]:
    levels = verdict.get("levels") or []
    confidence = _settings(verdicts, campaign)["confidence"]
    for crossing in verdict.get("crossings") or []:
        yield "Crosses at", _crossing_words(crossing, confidence)
    if censored := verdict.get("censored"):
        yield (
            "Crossing",
            f"if there is one, {'above' if censored['side'] in ('above', '>', 'high') else 'below'}"
            f" concurrency {level_number(censored['bound'])}",
        )
    for sign, term in (("+", "Faster at"), ("-", "Slower at"), ("?", "Cannot tell at")):
        at = [n["concurrency"] for n in levels if LABELS.get(n["label"]) == LABELS[sign]]
        if at:
            yield term, f"concurrency {listed(at)}"
    if known := [n for n in levels if n.get("ratio") is not None]:
        best = max(known, key=lambda n: n["ratio"])
        worst = min(known, key=lambda n: n["ratio"])
        if best is worst:
            yield "Ratio", _ratio_words(best)
        else:
            yield "Largest ratio", _ratio_words(best)
            yield "Smallest ratio", _ratio_words(worst)
    if (trials := verdict.get("n_trials")) is not None:
        paired = verdict.get("paired")
        how = "" if paired is None else ", compared within trials" if paired else ", not paired"
        yield "Trials", f"{trials}{how}"
    if (supported := verdict.get("equivalence_margin_supported")) is not None:
        yield "Differences excluded", f"beyond ±{supported * 100:.1f} %, at every level"
    if indicative := verdict.get("indicative"):
        labels = indicative["labels"]
        pairs = (
            labels.items()
            if isinstance(labels, Mapping)
            else zip((n["concurrency"] for n in levels), labels, strict=False)
        )
        said = listed(f"{LABELS.get(label, label)} at {c}" for c, label in pairs)
        yield (
            "Indication only",
            f"if repeated runs varied by {indicative['assumed_cv'] * 100:g} %: {said}",
        )
    if needed := verdict.get("needed"):
        yield (
            "To resolve",
            listed(f"concurrency {n['concurrency']}: about {n['trials']} trials" for n in needed),
        )
    if reasons := verdict.get("reasons"):
        yield "Because", "; ".join(words(r) for r in reasons)


def _crossing_words(crossing: Row, confidence: float) -> str:
    at = crossing.get("c_star")
    lo, hi = crossing.get("ci") or (None, None)
    a, b = crossing.get("bracket") or (None, None)
    text = f"concurrency {level_number(at)}" if at is not None else "a level not determined"
    if lo is not None or hi is not None:
        text += f", {confidence * 100:g} % interval {level_number(lo)} to {level_number(hi)}"
    if a is not None and b is not None:
        text += (
            f"; interpolated between the measured levels {level_number(a)} and {level_number(b)}"
        )
    if crossing.get("coarse"):
        text += " – a wide gap: measure levels in between before relying on it"
    return text


def _ratio_words(level: Row) -> str:
    value = ratio(level["ratio"], level.get("lo"), level.get("hi"))
    return f"{value} at concurrency {level['concurrency']}"


def _settings(verdicts: Row, campaign: Campaign) -> dict[str, float]:
    given = verdicts.get("settings") or {}
    return {
        key: default if given.get(key) is None else given[key]
        for key, default in (
            ("margin", campaign.analysis.margin),
            ("confidence", campaign.analysis.confidence),
        )
    }


def _why_no_verdict(campaign: Campaign, points: Sequence[Row]) -> str:
    if not points:
        return "Nothing has been measured yet."
    measured = {p["variant"] for p in points}
    if len(measured) == 1:
        return f"Only {measured.pop()} was measured: there is nothing to compare it with."
    if campaign.baseline not in measured:
        return (
            f"The baseline {campaign.baseline} was not measured: nothing can be compared with it."
        )
    return "The results hold no verdict."


# ------------------------------------------------------------------ warnings


def _warnings(
    campaign: Campaign,
    points: Sequence[Row],
    sessions: Sequence[Row],
    levels: Mapping[Any, Level],
    judged: Sequence[Row],
) -> list[Caution]:
    found = [
        Caution("Not measured", _not_measured(campaign, points), serious=True),
        Caution("Limits of the verdicts", _limits(campaign, judged)),
        Caution("Levels that carry no verdict", _invalid(levels), serious=True),
        Caution("Failed requests", _failed(levels)),
        Caution("Too few trials", _few_trials(campaign, judged)),
        Caution("Remarks on points", _grouped(points, lambda p: p["warnings"] or ())),
        Caution("Sessions", _session_problems(sessions), serious=True),
    ]
    return [w for w in found if w.items]


def _not_measured(campaign: Campaign, points: Sequence[Row]) -> list[str]:
    done = {(p["variant"], p["workload"], p["concurrency"], p["trial"]) for p in points}
    items = []
    for variant in campaign.variants:
        for workload in campaign.workloads:
            missing = {
                c: [
                    t
                    for t in range(1, campaign.load.trials + 1)
                    if (variant, workload, c, t) not in done
                ]
                for c in campaign.load.concurrency
            }
            if any(missing.values()):
                items.append(f"{variant}, {workload}: {_where(missing)}")
    return items


def _where(trials_at: Mapping[int, Sequence[int]]) -> str:
    """`concurrency 1, 4 (trials 1, 2); concurrency 16 (trial 2)`."""
    levels: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for concurrency, trials in sorted(trials_at.items()):
        if trials:
            levels[tuple(sorted(trials))].append(concurrency)
    return "; ".join(
        f"concurrency {listed(at)} (trial{'' if len(trials) == 1 else 's'} {listed(trials)})"
        for trials, at in levels.items()
    )


def _limits(campaign: Campaign, judged: Sequence[Row]) -> list[str]:
    items = []
    for verdict in judged:
        where = f"{_name(verdict, campaign)}, {verdict['workload']}: "
        items += [where + caveat["text"] for caveat in verdict.get("caveats") or []]
        if dropped := verdict.get("dropped_levels"):
            items.append(
                f"{where}left out, not usable on both sides: concurrency {listed(dropped)}"
            )
        if (feasible := verdict.get("feasible_max")) is not None and any(
            feasible < p for p in campaign.load.concurrency
        ):
            items.append(f"{where}the highest level that worked is concurrency {feasible}")
    return items


def _grouped(points: Sequence[Row], texts: Callable[[Row], Iterable[str]]) -> list[str]:
    """One line a (variant, workload, text) with its levels and trials."""
    groups: dict[tuple[str, str, str], dict[int, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for p in points:
        for text in texts(p):
            groups[p["variant"], p["workload"], text][p["concurrency"]].append(p["trial"])
    return [
        f"{variant}, {workload}: {words(text)} – {_where(at)}"
        for (variant, workload, text), at in groups.items()
    ]


def _invalid(levels: Mapping[Any, Level]) -> list[str]:
    return _grouped(
        [p for level in levels.values() for p in level.invalid],
        lambda p: p["invalid_reasons"] or ("no reason was recorded",),
    )


def _failed(levels: Mapping[Any, Level]) -> list[str]:
    totals: dict[tuple[str, str], list[int]] = {}
    for level in levels.values():
        failed, sent = level.total("failed"), level.total("requests")
        if failed:
            sums = totals.setdefault((level.variant, level.workload), [0, 0])
            sums[0] += failed
            sums[1] += sent or 0
    return [
        f"{variant}, {workload}: {failed:,} of {sent:,} requests at the levels with failures "
        "(by class below)"
        for (variant, workload), (failed, sent) in totals.items()
    ]


def _few_trials(campaign: Campaign, judged: Sequence[Row]) -> list[str]:
    said = {
        0: "no trial has a valid level on both sides",
        1: "one trial gives no interval, so there is no verdict; set load.trials to 3 or more",
    }
    return [
        f"{_name(v, campaign)}, {v['workload']}: "
        + said.get(
            v["n_trials"], f"{v['n_trials']} trials; below {FEW_TRIALS} a verdict is provisional"
        )
        for v in judged
        if v.get("n_trials") is not None and v["n_trials"] < FEW_TRIALS
    ]


def _session_problems(sessions: Sequence[Row]) -> list[str]:
    items = []
    versions: dict[str, set[str]] = defaultdict(set)
    for s in sessions:
        if s["engine"] and s["engine_version"]:
            versions[s["engine"]].add(s["engine_version"])
        if s["killed"]:
            items.append(f"{_session_name(s)}: the server did not end when asked and was killed")
        if s["processes_left"]:
            items.append(f"{_session_name(s)}: processes {listed(s['processes_left'])} outlived it")
        if s["port_closed"] is False:
            items.append(f"{_session_name(s)}: its port was still open after the stop")
    items += [
        f"{engine} ran in several versions: {listed(sorted(found))}"
        for engine, found in sorted(versions.items())
        if len(found) > 1
    ]
    hosts = sorted({s["host"] for s in sessions if s["host"]})
    if len(hosts) > 1:
        items.append(f"sessions ran on several hosts: {listed(hosts)}")
    return items


# ------------------------------------------------------------------ a workload


def _workload(
    name: str,
    campaign: Campaign,
    levels: Mapping[Any, Level],
    judged: Sequence[Row],
    verdicts: Row,
    policy: Row,
) -> WorkloadView:
    mine = [level for level in levels.values() if level.workload == name]
    judged = [v for v in judged if v["workload"] == name]
    figures = []
    for reference in dict.fromkeys(v["baseline"] for v in judged):
        against = [v for v in judged if v["baseline"] == reference]
        figures.append(_speedup(name, reference, against, mine, verdicts, campaign))
    figures += [
        _throughput(name, mine),
        _curve(name, mine),
        _latency(name, mine, "ttft_s", "Time to first token"),
        _latency(name, mine, "tpot_s", "Time per output token after the first"),
    ]
    if any(level.mean("acceptance_length") is not None for level in mine):
        figures.append(_acceptance(name, mine))
    return WorkloadView(
        name=name,
        description=_workload_description(name, campaign),
        figures=figures,
        policy=_policy((policy.get("workloads") or {}).get(name)),
        table=_table(name, mine, judged, campaign),
    )


def _workload_description(name: str, campaign: Campaign) -> str:
    workload = campaign.workloads.get(name)
    if workload is None:
        return "This workload is not in the campaign file any more."
    length = "exactly" if workload.ignore_eos else "up to"
    return (
        f"Prompts from {workload.prompts}; {length} {workload.max_tokens} output tokens, "
        f"temperature {workload.temperature:g}."
    )


def _series(levels: Iterable[Level]) -> list[tuple[str, str]]:
    return [(v, v) for v in dict.fromkeys(level.variant for level in levels)]


def _figure(kind: str, workload: str, levels: Sequence[Level], **rest: Any) -> Figure:
    rest.setdefault("slug", f"{kind}-{workload}")
    rest.setdefault("series", _series(levels))
    return Figure(kind=kind, levels=sorted({n.concurrency for n in levels}), **rest)


def _speedup(
    workload: str,
    reference: str,
    judged: Sequence[Row],
    levels: Sequence[Level],
    verdicts: Row,
    campaign: Campaign,
) -> Figure:
    settings = _settings(verdicts, campaign)
    margin, confidence = settings["margin"], settings["confidence"]
    means = [
        {
            "variant": v["variant"],
            "series": v["variant"],
            "concurrency": n["concurrency"],
            "ratio": n["ratio"],
            "lo": n.get("lo"),
            "hi": n.get("hi"),
            "said": ratio(n["ratio"], n.get("lo"), n.get("hi")),
            "label": LABELS.get(n["label"], n["label"]),
        }
        for v in judged
        for n in v.get("levels") or []
        if n.get("ratio") is not None
    ]
    crossings = [
        {
            "variant": v["variant"],
            "c_star": crossing.get("c_star"),
            "lo": (crossing.get("ci") or [None, None])[0],
            "hi": (crossing.get("ci") or [None, None])[1],
            "said": _crossing_words(crossing, confidence),
        }
        for v in judged
        for crossing in v.get("crossings") or []
    ]
    sentences = [v.get("sentence") or _name(v, campaign) for v in judged]
    extremes = [
        f"{v['variant']}: largest ratio {_ratio_words(max(known, key=lambda n: n['ratio']))}, "
        f"smallest {_ratio_words(min(known, key=lambda n: n['ratio']))}."
        for v in judged
        if (known := [n for n in v.get("levels") or [] if n.get("ratio") is not None])
    ]
    variants = list(dict.fromkeys(v["variant"] for v in judged))
    trials = _trial_ratios(variants, reference, levels)
    return _figure(
        "speedup",
        workload,
        levels,
        slug=f"speedup-{workload}" + ("" if reference == campaign.baseline else f"-{reference}"),
        title=f"Speed-up over {reference}",
        note=" ".join(_speedup_note(reference, margin, confidence, means, trials, crossings)),
        finding=" ".join([*sentences, *extremes]) if means else "No level can be compared.",
        series=[(name, name) for name in variants],
        means=means,
        trials=trials,
        crossings=crossings,
        margin=margin,
    )


def _speedup_note(
    reference: str,
    margin: float,
    confidence: float,
    means: Sequence[Row],
    trials: Sequence[Row],
    crossings: Sequence[Row],
) -> Iterable[str]:
    yield (
        f"Output throughput relative to {reference} at the same concurrency: above 1, the variant "
        "is faster. Large symbols are the estimates, small ones beside them single trials."
    )
    if not all(t["valid"] for t in trials):
        yield "Hollow symbols are invalid and left out."
    if any(m["lo"] is not None for m in means):
        yield f"The tinted band holds for all levels at once with {confidence * 100:g} % confidence."
    else:
        yield "There is no band: the data give no interval."
    yield f"The grey strip is the margin of ±{margin * 100:g} %, within which a difference counts as none."
    if crossings:
        yield "A dotted rule is an estimated crossing, the shaded column its interval."
    if len({m["concurrency"] for m in means}) > 1:
        yield "Lines between measured levels only guide the eye."


def _trial_ratios(
    variants: Iterable[str], reference: str, levels: Sequence[Level]
) -> list[dict[str, Any]]:
    """Throughput ratio of every trial in which both sides gave tokens, valid or not."""
    column = "output_throughput_tokens_per_s"
    points = {
        (p["variant"], p["concurrency"], p["trial"]): p
        for level in levels
        for p in (*level.valid, *level.invalid)
        if p[column]
    }
    return [
        {
            "variant": variant,
            "series": variant,
            "concurrency": concurrency,
            "trial": trial,
            "ratio": p[column] / other[column],
            "said": ratio(p[column] / other[column]),
            "valid": bool(p["valid"] and other["valid"]),
        }
        for (variant, concurrency, trial), p in points.items()
        if variant in variants and (other := points.get((reference, concurrency, trial)))
    ]


def _throughput(workload: str, levels: Sequence[Level]) -> Figure:
    column = "output_throughput_tokens_per_s"
    means = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "value": n.mean(column),
            "said": f"{number(n.mean(column))} tokens/s",
        }
        for n in levels
        if n.mean(column) is not None
    ]
    trials = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "trial": p["trial"],
            "value": p[column],
            "said": f"{number(p[column])} tokens/s",
            "valid": bool(p["valid"]),
        }
        for n in levels
        for p in (*n.valid, *n.invalid)
        if p[column] is not None
    ]
    return _figure(
        "throughput",
        workload,
        levels,
        title="Output throughput",
        note=(
            "Tokens per second received in the window. Lines join the means of the valid trials; "
            "small symbols beside them are trials"
            + ("." if all(t["valid"] for t in trials) else ", hollow ones invalid.")
        ),
        finding=_highest(
            means, "value", lambda r: f"{r['said']} at concurrency {r['concurrency']}"
        ),
        means=means,
        trials=trials,
    )


def _curve(workload: str, levels: Sequence[Level]) -> Figure:
    means = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "rate": rate,
            "value": total,
            "said": f"{number(rate)} tokens/s a request, {number(total)} in all",
        }
        for n in levels
        if (rate := n.mean("decode_rate_tokens_per_s")) is not None
        and (total := n.mean("output_throughput_tokens_per_s")) is not None
    ]
    return _figure(
        "curve",
        workload,
        levels,
        title="What a user gets against what the server gives",
        note=(
            "Median decode rate of one request (across) against total output throughput (up), one "
            "symbol a level with its concurrency; further up and right is better."
        ),
        finding=_highest(
            means, "rate", lambda r: f"{r['said']}, at concurrency {r['concurrency']}"
        ),
        means=means,
    )


def _highest(rows: Sequence[Row], key: str, say: Callable[[Row], str]) -> str:
    """`Highest: a 12 …; b 9 …` – each series' greatest value."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["series"] not in best or row[key] > best[row["series"]][key]:
            best[row["series"]] = row
    said = "; ".join(f"{name} {say(row)}" for name, row in best.items())
    return f"Highest: {said}." if said else "No level has a value."


def _latency(workload: str, levels: Sequence[Level], what: str, title: str) -> Figure:
    means = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "p50": p50 * 1000,
            "p99": None if n.mean(f"{what}_p99") is None else n.mean(f"{what}_p99") * 1000,
            "said": f"p50 {milliseconds(p50)} ms, p99 {milliseconds(n.mean(f'{what}_p99'))} ms",
        }
        for n in levels
        if (p50 := n.mean(f"{what}_p50")) is not None
    ]
    ends: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(means, key=lambda r: r["concurrency"]):
        ends[row["series"]].append(row)
    said = "; ".join(
        f"{name} {number(rows[0]['p50'])} ms at concurrency {rows[0]['concurrency']}"
        + (f", {number(rows[-1]['p50'])} ms at {rows[-1]['concurrency']}" if len(rows) > 1 else "")
        for name, rows in ends.items()
    )
    return _figure(
        "latency",
        workload,
        levels,
        slug=f"{what.removesuffix('_s')}-{workload}",
        title=title,
        note=(
            "Solid symbols: p50; open symbols on thin lines: p99. Means over trials. Closed loop."
        ),
        finding=f"Median: {said}." if said else "No level has a value.",
        means=means,
        unit="ms",
    )


def _acceptance(workload: str, levels: Sequence[Level]) -> Figure:
    means = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "value": value,
            "said": f"{value:.2f} tokens a verification",
        }
        for n in levels
        if (value := n.mean("acceptance_length")) is not None
    ]
    return _figure(
        "acceptance",
        workload,
        levels,
        title="Acceptance length",
        note="Tokens a verification step yields: 1 + accepted drafts, by the engine's own counters.",
        finding=_highest(
            means, "value", lambda r: f"{r['said']} at concurrency {r['concurrency']}"
        ),
        series=[(s, s) for s in dict.fromkeys(r["series"] for r in means)],
        means=means,
    )


def _policy(policy: Row | None) -> dict[str, Any] | None:
    """Rows `variant`, `range`, and `weight`: the width on a log scale, for the strip."""
    if not policy or not policy.get("table"):
        return None
    rows = []
    for row in policy["table"]:
        first, last = row["from"], row.get("to")
        span = f"{first} and above" if last is None else str(first)
        if last is not None and last != first:
            span = f"{first} to {last}"
        weight = 1.0 + math.log2((last or 2 * first) / first)
        rows.append({"variant": row["variant"], "range": span, "weight": round(weight, 3)})
    return {
        "rows": rows,
        "thresholds": [
            ", ".join(f"{words(str(k))} {v}" for k, v in t.items())
            if isinstance(t, Mapping)
            else str(t)
            for t in policy.get("thresholds") or []
        ],
        "advice": policy.get("advice") or "",
    }


def _table(
    workload: str, levels: Sequence[Level], judged: Sequence[Row], campaign: Campaign
) -> Table:
    compared: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    for v in judged:
        suffix = "" if v["baseline"] == campaign.baseline else f" (against {v['baseline']})"
        for n in v.get("levels") or []:
            compared[v["variant"], n["concurrency"]].append(
                (
                    ratio(n.get("ratio"), n.get("lo"), n.get("hi")) + suffix,
                    LABELS.get(n["label"], n["label"]) + suffix,
                )
            )
    rows = []
    for n in sorted(levels, key=lambda n: n.concurrency):  # stable: variants keep their order
        cells = compared[n.variant, n.concurrency]
        if not cells:
            cells = [(MISSING, "baseline" if n.variant == campaign.baseline else MISSING)]
        requests, failed = n.total("requests"), n.total("failed")
        acceptance = n.mean("acceptance_length")
        rows.append(
            [
                str(n.concurrency),
                n.variant,
                number(n.mean("output_throughput_tokens_per_s")),
                f"{len(n.valid)} of {len(n.valid) + len(n.invalid)}",
                "; ".join(c[0] for c in cells),
                "; ".join(c[1] for c in cells),
                number(n.mean("decode_rate_tokens_per_s")),
                milliseconds(n.mean("ttft_s_p50")),
                milliseconds(n.mean("ttft_s_p99")),
                milliseconds(n.mean("tpot_s_p50")),
                milliseconds(n.mean("tpot_s_p99")),
                MISSING if acceptance is None else f"{acceptance:.2f}",
                MISSING if requests is None else f"{requests:,}",
                MISSING if failed is None else f"{failed:,}",
                _validity(n),
            ]
        )
    return Table(
        caption=(
            f"All levels of {workload}: means over valid trials; requests and failures of all "
            "trials. The ratio comes from the model of all trials and may differ from the quotient "
            "of the means."
        ),
        columns=[
            "Concurrency",
            "Variant",
            "Throughput, tokens/s",
            "Valid trials",
            "Ratio [bounds]",
            "Result",
            "Decode rate, tokens/s",
            "TTFT p50, ms",
            "TTFT p99, ms",
            "TPOT p50, ms",
            "TPOT p99, ms",
            "Acceptance length",
            "Requests",
            "Failures",
            "Validity",
        ],
        rows=rows,
        heads=2,
        numeric=frozenset({0, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13}),
    )


def _validity(level: Level) -> str:
    if not level.invalid:
        return "valid"
    reasons = dict.fromkeys(
        words(r) for p in level.invalid for r in p["invalid_reasons"] or ("no reason recorded",)
    )
    share = f"{len(level.invalid)} of {len(level.valid) + len(level.invalid)} invalid"
    return f"{share}: {'; '.join(reasons)}"


# ------------------------------------------------------------------ failures and sessions


def _failures(points: Sequence[Row]) -> Table | None:
    counts: Counter[tuple[str, str, int, str]] = Counter()
    for p in points:
        classes = dict(p["errors_by_class"] or {})
        unnamed = (p["failed"] or 0) - sum(classes.values())
        if unnamed > 0:
            classes["class not recorded"] = unnamed
        for name, n in classes.items():
            if n:
                counts[p["variant"], p["workload"], p["concurrency"], name] += n
    if not counts:
        return None
    return Table(
        caption="Requests that failed, over all trials. They delivered no tokens.",
        columns=["Variant", "Workload", "Concurrency", "Class", "Requests"],
        rows=[[v, w, str(c), name, f"{n:,}"] for (v, w, c, name), n in sorted(counts.items())],
        heads=1,
        numeric=frozenset({2, 4}),
    )


def _session_name(session: Row) -> str:
    return f"{session['variant']}, trial {session['trial']}, {session['session_id']}"


def _session_table(sessions: Sequence[Row], points: Sequence[Row]) -> Table:
    measured = Counter(p["session_id"] for p in points)

    def end(s: Row) -> str:
        text = s["stop_reason"] or MISSING
        if s["exit_code"] is not None:
            text += f", exit status {s['exit_code']}"
        return text + (", killed" if s["killed"] else "")

    return Table(
        caption="Every life of a server, in order of time.",
        columns=[
            "Started",
            "Variant",
            "Trial",
            "Ready after, s",
            "Points",
            "Stopped",
            "Engine",
            "Host",
            "Session",
        ],
        rows=[
            [
                moment(s["started_at"]),
                s["variant"] or MISSING,
                str(s["trial"] if s["trial"] is not None else MISSING),
                number(s["ready_after_s"]),
                str(measured[s["session_id"]]),
                end(s),
                " ".join(filter(None, (s["engine"], s["engine_version"]))) or MISSING,
                s["host"] or MISSING,
                s["session_id"] or MISSING,
            ]
            for s in sessions
        ],
        heads=1,
        numeric=frozenset({2, 3, 4}),
    )


def _session_details(session: Row) -> list[tuple[str, str]]:
    found = []
    if session["command"]:
        found.append(("Command", shlex.join(session["command"])))
    if session["env"]:
        found.append(("Environment", "\n".join(f"{k}={v}" for k, v in sorted(session["env"]))))
    for key, label in (
        ("description", "What the server says it runs"),
        ("hardware", "Hardware"),
        ("versions", "Versions"),
    ):
        if session[key]:
            found.append((label, _pretty(session[key])))
    return found


def _pretty(text: str) -> str:
    """JSON indented; anything else as it is."""
    try:
        return json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False)
    except ValueError:
        return text


# ------------------------------------------------------------------ method, provenance, downloads


def _method(campaign: Campaign, verdicts: Row) -> list[str]:
    load = campaign.load
    settings = _settings(verdicts, campaign)
    return [
        "Closed loop: a level keeps its number of requests in flight; an answer that ends is "
        "replaced by a new request at once. Latencies hold for that load, not for a given "
        "arrival rate.",
        f"A session is one life of one server, started afresh and warmed up at the level's own "
        f"concurrency ({load.warmup.completions_per_client:g} answers a client, at most "
        f"{load.warmup.max_s:g} s). Throughput is the number of tokens received in a steady window "
        f"of at least {load.steady.min_s:g} s and {load.steady.completions_per_client:g} answers a "
        f"client (at most {load.steady.max_s:g} s), divided by its length. Ramp and drain do not "
        "count.",
        f"A trial is one session of every variant; {counted(load.trials, 'trial')} were planned, "
        "each in another order. Sessions, not requests, are the independent units of every "
        "interval: levels of one session share its launch effect.",
        "The ratio at a level is estimated from a model of all sessions (level and launch "
        "effects of log throughput). Its bounds hold for all levels at once, so that a crossing "
        "is claimed only where one side is really faster and the other really slower, each with "
        f"{settings['confidence'] * 100:g} % confidence over all levels.",
        f"A difference below ±{settings['margin'] * 100:g} % counts as none. “Cannot tell” means "
        "that the data allow either sign; it does not mean equal.",
        "Where a crossing lies between two measured levels it is interpolated; its interval "
        "includes what is not known about the shape of the curve there. Nothing is said beyond the "
        "tested levels and workloads.",
        "Time to first token (TTFT) runs from sending a request to its first token. Time per "
        "output token (TPOT) is (last − first token) / (output tokens − tokens of the first "
        "chunk). Acceptance length is 1 + accepted drafted tokens / verification steps.",
        "Failed requests deliver no tokens. An invalid level is shown and left out of the verdict.",
    ]


def _provenance(provenance: Row) -> list[tuple[str, Any]]:
    """(label, value): commands as a list of strings, other structures flattened to lines."""
    result = []
    for key, value in provenance.items():
        if value is None or key == "config_text":
            continue
        label = {"config_sha256": "Config SHA-256"}.get(key, key.replace("_", " ").capitalize())
        if key == "commands":
            value = [c if isinstance(c, str) else shlex.join(c) for c in value]
        elif isinstance(value, Mapping):
            value = "\n".join(f"{k}: {_plain(v)}" for k, v in value.items())
        else:
            value = _plain(value)
        result.append((label, value))
    if text := provenance.get("config_text"):
        result.append(("Config", [text]))
    return result


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
        return ", ".join(value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _downloads(
    points: Sequence[Row], verdicts: Row, policy: Row, provenance: Row, campaign: Campaign
) -> list[Download]:
    found = [
        Download(
            f"{campaign.name}-points.csv",
            f"points as CSV ({counted(len(points), 'row')})",
            _data_uri("text/csv", _csv(points)),
        ),
        Download(
            f"{campaign.name}-verdicts.json",
            "verdicts as JSON",
            _data_uri("application/json", json.dumps(verdicts, indent=1)),
        ),
        Download(
            f"{campaign.name}-policy.json",
            "policy as JSON",
            _data_uri("application/json", json.dumps(policy, indent=1)),
        ),
    ]
    if text := provenance.get("config_text"):
        found.append(
            Download(f"{campaign.name}.yaml", "campaign file", _data_uri("text/yaml", text))
        )
    return found


def _csv(points: Sequence[Row]) -> str:
    """Points as CSV: missing is empty, lists and maps are JSON."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [c.name for c in records.POINTS], lineterminator="\n")
    writer.writeheader()
    for p in points:
        cells = {**p, "errors_by_class": p["errors_by_class"] and dict(p["errors_by_class"])}
        writer.writerow(
            {k: json.dumps(v) if isinstance(v, (list, dict)) else v for k, v in cells.items()}
        )
    return out.getvalue()


def _data_uri(media_type: str, text: str) -> str:
    return f"data:{media_type};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
