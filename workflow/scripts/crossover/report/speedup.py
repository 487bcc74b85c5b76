"""The ratio of a variant to its baseline over the load: the figure of a verdict, for any metric."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from crossover.reasons import words
from crossover.report.figure import Figure, Table, figure_of
from crossover.report.wording import (
    UNITS,
    Row,
    crossing_words,
    in_unit,
    label_words,
    level_ratio,
    level_text,
    ratio,
    title_of,
    with_ratio,
)
from crossover.verdict_metrics import METRICS
from crossover.verdict_sentence import NOT_SPEEDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from crossover.axis import Axis
    from crossover.campaign import Campaign
    from crossover.report.levels import Level


def speedup(
    workload: str,
    reference: str,
    judged: Sequence[Row],
    levels: Sequence[Level],
    campaign: Campaign,
    axis: Axis,
) -> Figure:
    """Ratios of all variants that were judged against `reference` on one metric."""
    metric = judged[0]["metric"]
    means = [
        {
            "variant": v["variant"],
            "level": n["level"],
            "ratio": n["ratio"],
            "lo": n["lo"],
            "hi": n["hi"],
            "said": f"{ratio(n['ratio'], n['lo'], n['hi'])}, {label_words(n['label'], metric)}",
        }
        for v in judged
        for n in with_ratio(v)
    ]
    crossings = [
        {
            "variant": v["variant"],
            "direction": crossing["direction"],
            "c_star": crossing["c_star"],
            "lo": crossing["ci"][0],
            "hi": crossing["ci"][1],
            "said": crossing_words(crossing, campaign),
        }
        for v in judged
        for crossing in v["crossings"]
    ]
    extremes = [f"{v['variant']}: {_extremes(known)}." for v in judged if (known := with_ratio(v))]
    variants = list(dict.fromkeys(v["variant"] for v in judged))
    trials = _trial_ratios(variants, reference, levels, metric)
    slug = "-".join(
        [
            f"speedup-{workload}",
            *([] if metric == campaign.analysis.metric else [metric]),
            *([] if reference == campaign.baseline else [reference]),
        ]
    )
    title = title_of(metric)
    return figure_of(
        "speedup",
        workload,
        levels,
        axis=axis,
        slug=slug,
        title=f"Speed-up over {reference}"
        if metric == "output_throughput"
        else f"{title} relative to {reference}",
        note=" ".join(_note(reference, means, trials, crossings, levels, campaign, metric, axis)),
        finding=" ".join([*(v["sentence"] for v in judged), *extremes])
        if means
        else "No level can be compared.",
        variants=variants,
        means=means,
        trials=trials,
        crossings=crossings,
        margin=campaign.analysis.margin,
        unit="better" if metric in NOT_SPEEDS else "faster",
        metric=metric,
        table=_table(workload, reference, judged, axis),
    )


def _extremes(known: Sequence[Row]) -> str:
    smallest, largest = (pick(known, key=lambda n: n["ratio"]) for pick in (min, max))
    if len(known) == 1:
        return f"ratio {level_ratio(largest)}"
    return f"largest ratio {level_ratio(largest)}, smallest {level_ratio(smallest)}"


def _note(
    reference: str,
    means: Sequence[Row],
    trials: Sequence[Row],
    crossings: Sequence[Row],
    levels: Sequence[Level],
    campaign: Campaign,
    metric: str,
    axis: Axis,
) -> Iterable[str]:
    analysis = campaign.analysis
    which = f"{reference}'s over the variant's" if not METRICS[metric].higher_is_better else ""
    yield (
        f"{title_of(metric)} relative to {reference} at the same {axis.words}"
        f"{f' ({which}, so that more is better)' if which else ''}: above 1, the variant is better."
    )
    yield "Large symbols are the estimates" + (
        ", small ones beside them single trials." if trials else "; single trials are not drawn."
    )
    if any(m["lo"] is not None for m in means):
        yield (
            f"Each edge of a tinted band holds at all levels at once with "
            f"{(1 - analysis.alpha) * 100:g} % confidence."
        )
    else:
        yield "There is no band: the data give no interval."
    yield (
        f"The grey strip is the margin of ±{analysis.margin * 100:g} %, within which a difference "
        "counts as none."
    )
    if crossings:
        yield "A dotted rule is an estimated crossing C*, the shaded column its interval."
    if len({m["level"] for m in means}) > 1:
        yield "Lines between measured levels only guide the eye" + (
            "; where a variant crosses, they pass 1 at C*, the band's edges at the ends of "
            "its interval."
            if crossings
            else "."
        )
    if left_out := _left_out(levels, axis):
        yield f"Hollow symbols, or none, where a trial is invalid and left out: {left_out}."


def _left_out(levels: Sequence[Level], axis: Axis) -> str:
    """`ngram-3 at concurrency 64 (requests waited in the server)`, levels of one reason together."""
    places: dict[tuple[str, str], list[float]] = defaultdict(list)
    for n in levels:
        if n.invalid:
            places[n.variant, "; ".join(_reasons(n.invalid))].append(n.level)
    return ", ".join(
        f"{variant} at {axis.at(*those)} ({why})" for (variant, why), those in places.items()
    )


def _reasons(points: Sequence[Row]) -> list[str]:
    codes = (r for p in points for r in p["invalid_reasons"] or ("no reason recorded",))
    return [words(code) for code in dict.fromkeys(codes)]


def _trial_ratios(
    variants: Sequence[str], reference: str, levels: Sequence[Level], metric: str
) -> list[dict[str, Any]]:
    """Ratio of every trial in which both sides have a value above 0, valid or not."""
    column = METRICS[metric].column
    points = {
        (p["variant"], p["level"], p["trial"]): p
        for level in levels
        for p in level.points
        if p[column]
    }
    rows = []
    for (variant, level, trial), p in points.items():
        other = points.get((reference, level, trial))
        if variant not in variants or other is None:
            continue
        pair = (p, other) if METRICS[metric].higher_is_better else (other, p)
        value = pair[0][column] / pair[1][column]
        why = _reasons([q for q in (p, other) if not q["valid"]])
        rows.append(
            {
                "variant": variant,
                "level": level,
                "trial": trial,
                "ratio": value,
                "said": ratio(value) + (f" – invalid: {'; '.join(why)}" if why else ""),
                "valid": not why,
            }
        )
    return rows


def _table(workload: str, reference: str, judged: Sequence[Row], axis: Axis) -> Table | None:
    """The ratios of the figure, with the two means that they compare; None: there are none."""
    metric = judged[0]["metric"]
    unit = UNITS[metric].name
    rows = [
        [
            level_text(n["level"]),
            v["variant"],
            ratio(n["ratio"], n["lo"], n["hi"]),
            label_words(n["label"], metric),
            in_unit(n["variant_mean"], metric),
            in_unit(n["baseline_mean"], metric),
            f"{n['variant_trials']} and {n['baseline_trials']}",
        ]
        for v in judged
        for n in v["levels"]
    ]
    if not rows:
        return None
    return Table(
        caption=(
            f"{title_of(metric)} of {workload} relative to {reference}, as drawn and as judged; the "
            "means are the model's, of logarithms."
        ),
        columns=[
            axis.words.capitalize(),
            "Variant",
            "Ratio [bounds]",
            "Result",
            f"Variant, {unit}",
            f"{reference}, {unit}",
            "Trials",
        ],
        rows=sorted(rows, key=lambda r: float(r[0])),
        heads=2,
        numeric=frozenset({0, 2, 4, 5, 6}),
    )
