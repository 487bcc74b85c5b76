"""The report's short form for pull requests and chats: Markdown, and the picture beside it."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from crossover.report import theme, view
from crossover.report.levels import verdicts_of
from crossover.report.still import png
from crossover.report.wording import (
    label_words,
    level_text,
    listed,
    number,
    printable,
    ratio,
)
from crossover.verdict_metrics import metric_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

    from crossover.campaign import Campaign
    from crossover.report.figure import Figure
    from crossover.report.wording import Row

PICTURE = "summary.png"


def summarise(
    points: pa.Table | pd.DataFrame,
    sessions: pa.Table | pd.DataFrame,
    verdicts: Mapping[str, Any],
    policy: Mapping[str, Any],
    *,
    campaign: Campaign,
    generated_at: str,
) -> tuple[str, bytes]:
    """The summary as Markdown, and its picture, PNG, which it looks for under `PICTURE`.

    Arguments as for `page.render`; the same give the same bytes.
    """
    contents = view.prepare(
        points,
        sessions,
        verdicts,
        policy,
        campaign=campaign,
        provenance={},
        generated_at=generated_at,
        requests=None,
    )
    drawn = [
        replace(figure, title=f"{figure.title}, workload {workload.name}")
        for workload in contents.workloads
        for figure in workload.ratios
        if figure.metric == campaign.analysis.metric
    ]
    judged = [v for v in verdicts_of(verdicts) if v["metric"] == campaign.analysis.metric]
    blocks = [
        *_top(contents),
        *_verdicts(contents),
        *_pictures(drawn),
        *(block for verdict in judged if verdict["levels"] for block in _levels(verdict)),
        "## Limits",
        "\n".join(_limits(contents, campaign)),
        f"Made {escaped(contents.generated_at)} from `results/{campaign.name}/`; the whole "
        "report, with trials, latencies, method and provenance, is `reports/crossover.html`.",
    ]
    names = dict.fromkeys([*campaign.variants, *(n for f in drawn for n in f.variants)])
    picture = png(drawn, theme.looks(names, campaign.baseline), if_none=contents.no_cards)
    return "\n\n".join(blocks) + "\n", picture


def escaped(text: str) -> str:
    """Text from outside as Markdown that shows it: one line, no markup, no mention, no link."""
    line = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") else c for c in printable(text)
    )
    line = re.sub(r"([\\`*_\[\]<>|~&$])", r"\\\1", line)
    line = re.sub(r":(?=//)|(?<=www)\.", r"\\\g<0>", line)
    line = re.sub(r"^(\d+)([.)])(?= |$)", r"\1\\\2", line)
    line = re.sub(r"^[-+=](?= |$)", r"\\\g<0>", line)
    return re.sub(r"[@#]", "\\\\\\g<0>\N{WORD JOINER}", line)


def _top(contents: view.View) -> Iterable[str]:
    yield f"# Crossover: {escaped(contents.title)}"
    yield " · ".join(f"{escaped(term)}: {escaped(value)}" for term, value in contents.facts)
    if contents.rehearsal:
        yield (
            "> **Rehearsal on the simulated engine.** These numbers come from a model of a server "
            "and say nothing about any real engine."
        )


def _verdicts(contents: view.View) -> Iterable[str]:
    yield "## Verdict" if len(contents.cards) == 1 else "## Verdicts"
    if not contents.cards:
        yield escaped(contents.no_cards)
    for card in contents.cards:
        heading = f"{card.title}, workload {card.workload}: {card.badge}."
        yield f"**{escaped(heading)}** {escaped(card.sentence)}"


def _pictures(drawn: Sequence[Figure]) -> Iterable[str]:
    if drawn:
        finding = " ".join(f"{figure.title}. {figure.finding}" for figure in drawn)
        yield f"![{escaped(finding)}]({PICTURE})"


def _levels(verdict: Row) -> Iterable[str]:
    metric = metric_of(verdict["metric"])
    yield (
        f"{metric.title} under {escaped(verdict['workload'])}: means of the trials "
        f"(`{metric.column}`), ratio with bounds that hold at all levels together."
    )
    arms = [verdict["baseline"], verdict["variant"]]
    rows = [
        [
            level_text(level["level"]),
            number(level["baseline_mean"]),
            number(level["variant_mean"]),
            ratio(level["ratio"], level["lo"], level["hi"]),
            label_words(level["label"], verdict["metric"]),
        ]
        for level in verdict["levels"]
    ]
    head = [verdict["axis"].words, *arms, "ratio [bounds]", "result"]
    yield "\n".join(
        [
            _row(head),
            "|---:|---:|---:|---:|---|",
            *map(_row, rows),
        ]
    )


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def _limits(contents: view.View, campaign: Campaign) -> Iterable[str]:
    for warning in contents.warnings:
        yield f"- **{escaped(warning.title)}**"
        yield from (f"  - {escaped(item)}" for item in warning.items)
    workloads = [w.name for w in contents.workloads]
    yield (
        f"- Measured {_of('the workload', workloads)} at {_of('the level', campaign.load.levels)}; "
        "nothing is said of other prompts, lengths, levels or machines."
    )


def _of(noun: str, values: Sequence[Any]) -> str:
    return f"{noun}{'' if len(values) == 1 else 's'} {escaped(listed(values))}"
