"""The page that sets campaigns side by side: one HTML file that loads nothing and runs nothing."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from crossover.axis import AXES
from crossover.compare import changes
from crossover.compare.likeness import SAMENESS, Likeness, bounds_agree, likeness, sheet
from crossover.compare.results import Comparison, Results
from crossover.compare.throughputs import throughput_table
from crossover.report import charts, theme
from crossover.report.cautions import Caution, Place, names
from crossover.report.figure import Figure, Table
from crossover.report.page import TEMPLATES as REPORT_TEMPLATES
from crossover.report.page import WIDE
from crossover.report.wording import (
    MISSING,
    Row,
    badge_of,
    label_words,
    level_number,
    listed,
    ratio,
)
from crossover.verdict_metrics import metric_of
from crossover.verdict_sentence import NOT_SPEEDS

NARROW = 370
"""Width in pixels of a drawing on a phone."""

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Section:
    """One comparison on the campaigns' own metric: what changed, in words, drawn and in numbers."""

    title: str
    changed: list[str]
    sentences: list[tuple[str, str]]
    figure: Figure
    table: Table | None


@dataclass(frozen=True)
class View:
    """The whole page, top to bottom."""

    title: str
    campaigns: list[tuple[str, str]]
    sections: list[Section]
    cautions: list[Caution]
    verdicts: Table
    throughputs: Table | None
    sheet: Table
    commands: list[tuple[str, str]]
    generated_at: str


def render(campaigns: Sequence[Results], *, generated_at: str) -> str:
    """The comparison as HTML, each later campaign against the first one.

    The same arguments give the same bytes.
    """
    contents = prepare(campaigns, generated_at=generated_at)
    looks = theme.looks([c.label for c in campaigns[1:]], campaigns[0].label)
    return (
        jinja2.Environment(
            loader=jinja2.FileSystemLoader([TEMPLATES, REPORT_TEMPLATES]),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        .get_template("compare.html")
        .render(
            view=contents,
            drawings={s.figure.slug: _drawing(s.figure, looks) for s in contents.sections},
            looks=looks,
            colours={**theme.PAGE_COLOURS, **theme.SERIES_COLOURS},
            style=Markup((REPORT_TEMPLATES / "page.css").read_text()),
        )
    )


def prepare(campaigns: Sequence[Results], *, generated_at: str) -> View:
    """Turn the results into the page's contents."""
    first, *later = campaigns
    likenesses = {c.label: likeness(first, c) for c in later}
    keys = list(dict.fromkeys(key for c in campaigns for key in c.verdicts))
    metric = first.settings["metric"]
    return View(
        title=" against ".join(c.label for c in reversed(campaigns)),
        campaigns=[(c.label, c.folder) for c in campaigns],
        sections=[
            _section(key, campaigns)
            for key in keys
            if key[3] == metric and sum(key in c.verdicts for c in campaigns) > 1
        ],
        cautions=_cautions(campaigns, likenesses, keys),
        verdicts=_verdicts(campaigns, keys),
        throughputs=throughput_table(campaigns, likenesses),
        sheet=_sheet(campaigns),
        commands=list(_commands(campaigns)),
        generated_at=generated_at,
    )


# ------------------------------------------------------------------ a comparison


def _section(key: Comparison, campaigns: Sequence[Results]) -> Section:
    variant, baseline, workload, _ = key
    found = {c.label: c.verdicts[key] for c in campaigns if key in c.verdicts}
    first, *later = found
    by_label = {c.label: c for c in campaigns}
    changed, columns = [], {}
    for label in later:
        known = likeness(by_label[first], by_label[label])
        against = [*known.against_speedups, *known.against_workloads.get(workload, ())]
        if against:
            changed.append(f"{label} against {first}: not compared. {' '.join(against)}")
            continue
        bounded = bounds_agree(by_label[first], by_label[label])
        columns[label] = changes.of_levels(found[first], found[label], bounded=bounded)
        changed.append(_in_words(f"{label} against {first}", columns[label]))
        if moved := changes.of_crossing(found[first], found[label], bounded=bounded):
            changed.append(
                f"{label} against {first}: its C* is {ratio(moved.ratio, moved.lo, moved.hi)} "
                f"times that of {first}."
            )
    return Section(
        title=f"{variant} against {baseline}, {workload}",
        changed=changed,
        sentences=[(label, v["sentence"]) for label, v in found.items()],
        figure=_figure(key, found, changed),
        table=_levels(key, found, columns),
    )


def _in_words(pair: str, by_level: dict[float, changes.Change]) -> str:
    if not by_level:
        return f"{pair}: no level in common."
    words = {
        "+": "rose",
        "-": "fell",
        "?": "cannot be told from unchanged",
        None: "changed without bounds",
    }
    parts = [
        f"{said} at {listed(f'{level:g} (×{by_level[level].ratio:.2f})' for level in at)}"
        for label, said in words.items()
        if (at := [level for level, one in by_level.items() if one.label == label])
    ]
    return f"{pair}: the speed-up {'; '.join(parts)}."


def _figure(key: Comparison, found: dict[str, Row], changed: list[str]) -> Figure:
    variant, baseline, workload, metric = key
    axis = next(iter(found.values()))["axis"]
    means = [
        {
            "variant": label,
            "level": n[axis],
            "ratio": n["ratio"],
            "lo": n["lo"],
            "hi": n["hi"],
            "said": f"{ratio(n['ratio'], n['lo'], n['hi'])}, {label_words(n['label'], metric)}",
        }
        for label, v in found.items()
        if v["axis"] == axis
        for n in v["levels"]
        if n["ratio"]
    ]
    return Figure(
        kind="speedup",
        slug=f"speedup-{variant}-{baseline}-{workload}",
        title=f"Speed-up of {variant} over {baseline}",
        note=(
            "One line a campaign: the ratio within that campaign. Bands are bounds that hold at "
            "all its levels together. Lines join measured levels, nothing in between was measured."
        ),
        finding=" ".join(changed) if means else "No campaign has a level to draw.",
        axis=AXES[axis],
        unit="better" if metric in NOT_SPEEDS else "faster",
        variants=list(found),
        levels=sorted({r["level"] for r in means}),
        means=means,
    )


def _levels(
    key: Comparison, found: dict[str, Row], columns: dict[str, dict[float, changes.Change]]
) -> Table | None:
    first = next(iter(found.values()))
    axis = AXES[first["axis"]]
    by_level = {
        label: {n[axis.name]: n for n in v["levels"]}
        for label, v in found.items()
        if v["axis"] == axis.name
    }
    levels = sorted({level for of_one in by_level.values() for level in of_one})
    if not levels:
        return None
    rows = []
    for level in levels:
        row = [f"{level:g}"]
        for of_one in by_level.values():
            n = of_one.get(level)
            row.append(ratio(n["ratio"], n["lo"], n["hi"]) if n else MISSING)
        for of_one in columns.values():
            one = of_one.get(level)
            row += [ratio(one.ratio, one.lo, one.hi), CHANGES[one.label]] if one else [MISSING] * 2
        rows.append(row)
    head = [axis.words.capitalize(), *(f"Speed-up, {label}" for label in by_level)]
    for label in columns:
        head += [f"{label} / {next(iter(found))}", "Change"]
    return Table(
        caption=f"{key[0]} against {key[1]} under {key[2]}: speed-ups, and their ratios.",
        columns=head,
        rows=rows,
        numeric=frozenset(i for i, name in enumerate(head) if name != "Change"),
    )


CHANGES = {"+": "rose", "-": "fell", "?": "cannot tell", None: "no bounds"}


def _drawing(figure: Figure, looks: charts.Looks) -> dict[str, Any] | None:
    """Two drawings, of which the style sheet shows one: scaled down, a wide one cannot be read."""
    spec = charts.draw(figure, looks)
    if spec is None:
        return None
    drawn = (
        f'<div class="{name}">{charts.static_svg(spec, width)}</div>'
        for name, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return {"svg": Markup("".join(drawn))}


# ------------------------------------------------------------------ all campaigns


def _verdicts(campaigns: Sequence[Results], keys: Iterable[Comparison]) -> Table:
    return Table(
        caption="Every verdict of every campaign.",
        columns=["Comparison", "Workload", "Metric", *(c.label for c in campaigns)],
        rows=[
            [
                f"{variant} against {baseline}",
                workload,
                metric_of(metric).title,
                *(
                    _verdict_words(c.verdicts.get((variant, baseline, workload, metric)))
                    for c in campaigns
                ),
            ]
            for variant, baseline, workload, metric in keys
        ],
        heads=1,
    )


def _verdict_words(verdict: Row | None) -> str:
    if verdict is None:
        return "not in this campaign"
    badge, _ = badge_of(verdict)
    at = [
        f"{level_number(c['c_star'])} [{'–'.join(map(level_number, c['ci']))}]"
        for c in verdict["crossings"]
    ]
    return badge + (f" at {listed(at)}" if at else "")


def _cautions(
    campaigns: Sequence[Results],
    likenesses: dict[str, Likeness],
    keys: Sequence[Comparison],
) -> list[Caution]:
    first = campaigns[0].label
    found = []
    for label, known in likenesses.items():
        pair = f"{label} against {first}"
        found += [
            Caution(f"Not comparable: {pair}", known.against_speedups, serious=True),
            Caution(
                f"Other work under the same name: {pair}",
                [why for whys in known.against_workloads.values() for why in whys],
                serious=True,
            ),
            Caution(f"Tokens per second not compared: {pair}", known.against_throughputs),
            Caution(f"With care: {pair}", known.cautions),
        ]
    alone: dict[str, list[Place]] = defaultdict(list)
    for key in keys:
        having = [c.label for c in campaigns if key in c.verdicts]
        if len(having) < len(campaigns):
            alone[f"{metric_of(key[3]).title} only in {listed(having)}"].append(_place(key))
    found.append(Caution("Not in all campaigns", _said_once(alone)))
    for c in campaigns:
        limits: dict[str, list[Place]] = defaultdict(list)
        for key, v in c.verdicts.items():
            for caveat in v["caveats"] if key[3] == c.settings["metric"] else ():
                limits[caveat["text"]].append(_place(key))
        found.append(Caution(f"Limits of the verdicts of {c.label}", _said_once(limits)))
    return [caution for caution in found if caution.items]


def _place(key: Comparison) -> Place:
    variant, baseline, workload, _ = key
    return f"{variant} against {baseline}", workload


def _said_once(places_of: dict[str, list[Place]]) -> list[str]:
    return [f"{names(places)}: {text}" for text, places in places_of.items()]


def _sheet(campaigns: Sequence[Results]) -> Table:
    return Table(
        caption="What is recorded of the campaigns. Equal work: equal prompts, lengths, sampling "
        "and load settings, by a digest of them.",
        columns=["What", *(c.label for c in campaigns), ""],
        rows=[[f.what.capitalize(), *f.values, SAMENESS[f.same]] for f in sheet(list(campaigns))],
    )


def _commands(campaigns: Sequence[Results]) -> Iterable[tuple[str, str]]:
    """(campaign and variant, the first command of its server) of every different server."""
    for c in campaigns:
        for variant in dict.fromkeys(s["variant"] for s in c.sessions):
            servers: dict[str, str] = {}
            for s in c.sessions_of(variant):
                if s["command"]:  # a port may differ from start to start, and stands in no digest
                    command = shlex.join(s["command"])
                    servers.setdefault(s["server_digest"] or command, command)
            for command in servers.values():
                yield f"{c.label}: {variant}", command
