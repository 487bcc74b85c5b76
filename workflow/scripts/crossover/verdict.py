"""The verdict on one variant against one baseline under one workload.

`find_verdict` takes points, leaves out what cannot carry a verdict, fits the model of
`stats.model` and applies the rules of METHOD §4; `sentence` says the result in plain words.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from crossover.blocks import Block, Launch, caveats, form_blocks
from crossover.errors import CampaignError
from crossover.stats.curve import Crossing, find_crossing, hard_bracket
from crossover.stats.model import LogRatio, Observation, Settings, fit
from crossover.verdict_sentence import sentence

if TYPE_CHECKING:
    import pandas as pd

    from crossover.campaign import Analysis

__all__ = [
    "METRICS",
    "Level",
    "Metric",
    "Verdict",
    "find_verdict",
    "sentence",
    "settings_of",
    "usable_points",
]

MAX_TRIALS = 40
"""More trials than this are not worth asking for: 4 × the default budget of 10 (METHOD §6)."""

OUTPUT_LENGTH_TOLERANCE = 0.02
"""Relative difference of the arms' mean output lengths from which it is flagged (METHOD §1)."""


class Metric(NamedTuple):
    """What is compared."""

    column: str
    """of `records.POINTS`"""
    higher_is_better: bool
    operational_laws: bool
    """Does not fall with concurrency, nor rise faster than it, and is concave in ln C: the
    structural band and the hard bracket hold (METHOD §5)."""
    cv_column: str | None = None
    """its within-run coefficient of variation"""


METRICS = {
    "output_throughput": Metric(
        "output_throughput_tokens_per_s",
        higher_is_better=True,
        operational_laws=True,
        cv_column="cv_within",
    ),
    "ttft": Metric("ttft_s_p50", higher_is_better=False, operational_laws=False),
    "tpot": Metric("tpot_s_p50", higher_is_better=False, operational_laws=False),
}


@dataclass(frozen=True)
class Level:
    """The comparison at one concurrency. `ratio` > 1: the variant is better.

    `lo`, `hi` are one-sided bounds that hold at all levels together (Šidák), `pointwise_lo`,
    `pointwise_hi` at this level alone; all four and `label` are None where nothing was repeated.
    """

    concurrency: int
    ratio: float
    lo: float | None
    hi: float | None
    pointwise_lo: float | None
    pointwise_hi: float | None
    label: str | None
    """+ variant better, - baseline better, ? unresolved"""
    baseline_mean: float
    variant_mean: float
    baseline_trials: int
    variant_trials: int


@dataclass(frozen=True)
class Verdict:
    """The answer for one variant × baseline × workload × metric, on the tested levels only."""

    variant: str
    baseline: str
    workload: str | None
    metric: str
    verdict: str
    """crossover, variant_faster_throughout, baseline_faster_throughout, multiple_crossovers,
    equivalent, inconclusive or not_comparable"""
    confidence: float
    """of the interval of C*"""
    margin: float
    """relative difference that does not matter"""
    reasons: tuple[str, ...] = ()
    caveats: tuple[dict[str, str], ...] = ()
    """{code, text}"""
    levels: tuple[Level, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    indicative: dict[str, Any] | None = None
    """{assumed_cv, labels}: a label a level under an assumed noise, where nothing was repeated"""
    censored: dict[str, Any] | None = None
    """{side, bound} where no sign changes: above, C* > bound; below, C* < bound"""
    dropped_levels: tuple[int, ...] = ()
    """levels that one arm alone has"""
    bad_rows: tuple[dict[str, Any], ...] = ()
    """points left out: {concurrency, variant, trial, reasons}"""
    feasible_max: dict[str, int | None] = field(default_factory=dict)
    """{baseline, variant}: highest level with a usable point"""
    paired: bool = False
    """differences within blocks were analysed"""
    n_trials: int = 0
    tau: float | None = None
    """standard deviation of the launch effect, in ln of the metric"""
    equivalence_margin_supported: float | None = None
    """smallest margin for which the arms would be found equivalent"""
    needed: tuple[dict[str, int | None], ...] = ()
    """{concurrency, trials} that would resolve each unresolved level; None: more than is sensible"""
    parity: None = None
    break_even: None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types without NaN, with the verdict's sentence under `sentence`."""
        return _plain({**asdict(self), "sentence": sentence(self)})

    def labelled(self, label: str) -> list[int]:
        """The levels with this label."""
        return [level.concurrency for level in self.levels if level.label == label]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def settings_of(analysis: Analysis) -> Settings:
    """The settings that follow from a campaign's `analysis` section."""
    return Settings(
        margin=analysis.margin,
        alpha=1 - analysis.confidence,
        confidence=analysis.confidence,
    )


def find_verdict(
    points: pd.DataFrame,
    analysis: Analysis,
    *,
    variant: str,
    baseline: str,
    workload: str | None = None,
    settings: Settings | None = None,
) -> Verdict:
    """Judge one variant against one baseline.

    Args:
        points: rows of `records.POINTS` of one workload; other variants' rows are ignored. Used
            are variant, trial, concurrency, the metric's column, and where present session_id,
            cv_within, error_share, valid, invalid_reasons, workload, output_tokens_mean and the
            facts of the session (host, boot_id, engine_version, session_started_at). Without
            those each trial counts as one launch an arm and as one block. Null is missing.
        analysis: metric, margin, confidence and block span of the campaign.
        variant: the arm whose advantage is asked for.
        baseline: the arm it is compared with.
        workload: name of the workload; needed only where there may be no points to tell it.
        settings: replaces those that follow from `analysis`, e.g. the smaller alpha of data that
            are judged again after every trial.

    Raises:
        CampaignError: `analysis.metric` is no metric.
    """
    metric = _metric(analysis)
    settings = settings or settings_of(analysis)
    usable, bad_rows = usable_points(points, analysis, settings, [variant, baseline])
    observations, blocks = _observations(usable, metric, analysis)
    arms = {"baseline": observations[baseline], "variant": observations[variant]}
    levels = {arm: {o.level for o in of_arm} for arm, of_arm in arms.items()}
    known = {
        "variant": variant,
        "baseline": baseline,
        "workload": workload or _workload(points),
        "metric": analysis.metric,
        "confidence": settings.confidence,
        "margin": settings.margin,
        "bad_rows": tuple(bad_rows),
        "dropped_levels": tuple(sorted(levels["baseline"] ^ levels["variant"])),
        "feasible_max": {arm: max(of_arm, default=None) for arm, of_arm in levels.items()},
    }
    ratio = fit(arms["baseline"], arms["variant"], settings)
    if ratio is None:
        lacking = [f"{arm}_without_valid_points" for arm, of_arm in levels.items() if not of_arm]
        return Verdict(
            verdict="not_comparable", reasons=tuple(lacking or ["no_common_level"]), **known
        )
    known |= {"paired": ratio.paired, "n_trials": ratio.n_trials}
    notes = caveats(blocks, variant, baseline, paired=ratio.paired)
    notes += _notes(ratio, usable, known, metric, settings)
    if ratio.reasons:
        return Verdict(
            verdict="inconclusive",
            reasons=ratio.reasons,
            levels=_levels(ratio, None, metric),
            indicative=_indicative(ratio, settings),
            caveats=tuple(notes),
            **known,
        )
    return _judged(ratio, metric, settings, notes, known)


def _metric(analysis: Analysis) -> Metric:
    try:
        return METRICS[analysis.metric]
    except KeyError:
        raise CampaignError(
            f"analysis.metric: {analysis.metric!r} is no metric; allowed: {', '.join(METRICS)}"
        ) from None


def _workload(points: pd.DataFrame) -> str | None:
    names = set(points["workload"].dropna()) if "workload" in points else set()
    return names.pop() if len(names) == 1 else None


# ------------------------------------------------------------------ points


def usable_points(
    points: pd.DataFrame, analysis: Analysis, settings: Settings, variants: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split the variants' points into those that may carry a verdict and the rest.

    Returns:
        The usable points as dicts, with `value`, the metric, and an integer `concurrency`; and
        the others as {concurrency, variant, trial, reasons}.
    """
    metric = _metric(analysis)
    usable, bad = [], []
    for point in points[points["variant"].isin(list(variants))].to_dict("records"):
        level, value = _number(point.get("concurrency")), _number(point.get(metric.column))
        if reasons := _faults(point, level, value, settings):
            named = {"concurrency": None if level is None else int(level)}
            named |= {"variant": point["variant"], "trial": point["trial"], "reasons": reasons}
            bad.append(named)
        else:
            usable.append({**point, "concurrency": int(level), "value": value})
    return usable, bad


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _faults(
    point: Mapping[str, Any], level: float | None, value: float | None, settings: Settings
) -> list[str]:
    """Why a point cannot carry a verdict; empty if it can."""
    valid = point.get("valid")
    if isinstance(valid, (bool, np.bool_)) and not valid:
        stated = point.get("invalid_reasons")
        return (
            list(stated) if isinstance(stated, (list, np.ndarray)) and len(stated) else ["invalid"]
        )
    faults = []
    if level is None or level < 1:
        faults.append("bad_concurrency")
    if value is None:
        faults.append("no_value")
    elif value <= 0:
        faults.append("zero_value")
    if (_number(point.get("error_share")) or 0.0) > settings.max_error_share:
        faults.append("errors")
    return faults


def _observations(
    usable: Iterable[Mapping[str, Any]], metric: Metric, analysis: Analysis
) -> tuple[dict[str, list[Observation]], dict[Launch, Block]]:
    """The usable points by variant, oriented and with their blocks; and the launches' blocks."""
    launches = [Launch.of(point) for point in usable]
    blocks = form_blocks(launches, analysis.block_span_h)
    sign = 1 if metric.higher_is_better else -1
    observations = defaultdict(list)
    for point, launch in zip(usable, launches, strict=True):
        observations[launch.variant].append(
            Observation(
                level=point["concurrency"],
                trial=launch.trial,
                launch=_launch_key(launch),
                block=blocks[launch],
                log_value=sign * math.log(point["value"]),
                cv_within=_number(point.get(metric.cv_column)) or 0.0,
            )
        )
    return observations, blocks


def _launch_key(launch: Launch) -> Hashable:
    return launch.session_id if launch.session_id is not None else launch.trial


# ------------------------------------------------------------------ the rules


@dataclass(frozen=True)
class _Bounds:
    """One-sided bounds of the log ratio by level (METHOD §4)."""

    lo: np.ndarray
    hi: np.ndarray
    pointwise_lo: np.ndarray
    pointwise_hi: np.ndarray
    t: np.ndarray
    """quantile behind `lo` and `hi`"""

    @classmethod
    def of(cls, ratio: LogRatio, alpha: float) -> _Bounds:
        se = np.maximum(ratio.se, 1e-12)
        t = stdtrit(ratio.df, _sidak(alpha, len(ratio.levels)))
        pointwise = stdtrit(ratio.df, 1 - alpha) * se
        r = ratio.log_ratio
        return cls(r - t * se, r + t * se, r - pointwise, r + pointwise, t)

    @property
    def labels(self) -> list[str]:
        return [
            "+" if lo > 0 else "-" if hi < 0 else "?"
            for lo, hi in zip(self.lo, self.hi, strict=True)
        ]


def _sidak(alpha: float, n: int) -> float:
    """The one-sided confidence at each of `n` levels that gives 1 - alpha at all (Šidák)."""
    return (1 - alpha) ** (1 / n)


def _judged(
    ratio: LogRatio,
    metric: Metric,
    settings: Settings,
    notes: list[dict[str, str]],
    known: dict[str, Any],
) -> Verdict:
    bounds = _Bounds.of(ratio, settings.alpha)
    labels = bounds.labels
    changes = _sign_changes(labels)
    kind = _rule(ratio.log_ratio, bounds, labels, len(changes), math.log1p(settings.margin))
    crossings, violated = _crossings(ratio, bounds, changes, metric, settings)
    reasons = []
    if kind == "inconclusive":
        some = set(labels) != {"?"}
        reasons.append("levels_unresolved" if some else "no_significant_level")
    reasons += ["operational_law_violated"] * violated
    if changes and kind not in ("crossover", "multiple_crossovers"):
        reasons.append("crossing_within_margin")
    widest = max(-bounds.pointwise_lo.min(), bounds.pointwise_hi.max())
    return Verdict(
        verdict=kind,
        reasons=tuple(reasons),
        caveats=tuple(notes + _notes_on_crossings(ratio, labels, changes, crossings)),
        levels=_levels(ratio, bounds, metric),
        crossings=tuple(crossings),
        censored=_censored(ratio.levels, labels),
        tau=ratio.tau,
        equivalence_margin_supported=math.expm1(widest),
        needed=_needed(ratio, bounds, labels),
        **known,
    )


def _sign_changes(labels: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of indices of neighbouring labels with opposite signs, unresolved ones passed over."""
    signed = [i for i, label in enumerate(labels) if label != "?"]
    pairs = itertools.pairwise(signed)
    return [(i, j) for i, j in pairs if labels[i] != labels[j]]


def _rule(
    r: np.ndarray, bounds: _Bounds, labels: Sequence[str], n_changes: int, margin: float
) -> str:
    """The first rule of METHOD §4 that holds; `margin` is in ln.

    Rules about all levels are intersection-union tests and use pointwise bounds; a crossing is a
    claim about some level and rests on labels from simultaneous ones.
    """
    not_worse = bool((bounds.pointwise_lo > -margin).all())
    not_better = bool((bounds.pointwise_hi < margin).all())
    gains = any(label == "+" and x > margin for label, x in zip(labels, r, strict=True))
    losses = any(label == "-" and x < -margin for label, x in zip(labels, r, strict=True))
    if not_worse and not_better:
        return "equivalent"
    if not_worse and gains:
        return "variant_faster_throughout"
    if not_better and losses:
        return "baseline_faster_throughout"
    return {0: "inconclusive", 1: "crossover"}.get(n_changes, "multiple_crossovers")


def _crossings(
    ratio: LogRatio,
    bounds: _Bounds,
    changes: Iterable[tuple[int, int]],
    metric: Metric,
    settings: Settings,
) -> tuple[list[Crossing], int]:
    """The crossings, and how many of them contradict the operational laws."""
    crossings, violated = [], 0
    least = np.maximum(bounds.lo, -bounds.hi)
    for first, last in changes:
        crossing = find_crossing(
            ratio, first, last, laws=metric.operational_laws, settings=settings
        )
        if metric.operational_laws:
            hard = hard_bracket(crossing.bracket, (least[first], least[last]))
            violated += hard is None
            crossing = Crossing(**{**vars(crossing), "hard": hard or crossing.hard})
        crossings.append(crossing)
    return crossings, violated


def _censored(levels: np.ndarray, labels: Sequence[str]) -> dict[str, Any] | None:
    """Where C* is said not to be, if no sign changes."""
    signs = set(labels) - {"?"}
    if len(signs) != 1:
        return None
    signed = [int(level) for level, label in zip(levels, labels, strict=True) if label != "?"]
    if signs == {"+"}:
        return {"side": "above", "bound": max(signed)}
    return {"side": "below", "bound": min(signed)}


def _needed(
    ratio: LogRatio, bounds: _Bounds, labels: Sequence[str]
) -> tuple[dict[str, int | None], ...]:
    """Trials that would resolve each unresolved level: R·(t·se/|r|)² (METHOD §6)."""
    needed = []
    for i in np.flatnonzero(np.array(labels) == "?"):
        done = int(min(ratio.baseline_trials[i], ratio.variant_trials[i]))
        noise = bounds.t[i] * ratio.se[i]
        size = max(abs(ratio.log_ratio[i]), 1e-9)
        trials = max(math.ceil(done * (noise / size) ** 2), done + 1)
        needed.append(
            {
                "concurrency": int(ratio.levels[i]),
                "trials": trials if trials <= MAX_TRIALS else None,
            }
        )
    return tuple(needed)


def _indicative(ratio: LogRatio, settings: Settings) -> dict[str, Any] | None:
    """Labels under an assumed run-to-run variation: ±z·√2·CV, z Šidák-adjusted (METHOD §4)."""
    if not settings.assumed_cv:
        return None
    z = ndtri(_sidak(settings.alpha, len(ratio.levels)))
    bound = z * math.sqrt(2) * settings.assumed_cv
    labels = ["+" if r > bound else "-" if r < -bound else "?" for r in ratio.log_ratio]
    return {"assumed_cv": settings.assumed_cv, "labels": labels}


def _levels(ratio: LogRatio, bounds: _Bounds | None, metric: Metric) -> tuple[Level, ...]:
    sign = 1 if metric.higher_is_better else -1

    def bound(name: str, i: int) -> float | None:
        return None if bounds is None else math.exp(getattr(bounds, name)[i])

    return tuple(
        Level(
            concurrency=int(level),
            ratio=math.exp(ratio.log_ratio[i]),
            **{name: bound(name, i) for name in ("lo", "hi", "pointwise_lo", "pointwise_hi")},
            label=None if bounds is None else bounds.labels[i],
            baseline_mean=math.exp(sign * ratio.log_baseline[i]),
            variant_mean=math.exp(sign * ratio.log_variant[i]),
            baseline_trials=int(ratio.baseline_trials[i]),
            variant_trials=int(ratio.variant_trials[i]),
        )
        for i, level in enumerate(ratio.levels)
    )


# ------------------------------------------------------------------ caveats


def _notes(
    ratio: LogRatio,
    usable: Sequence[Mapping[str, Any]],
    known: Mapping[str, Any],
    metric: Metric,
    settings: Settings,
) -> list[dict[str, str]]:
    """Caveats about the data, whatever the verdict."""
    notes = []

    def note(code: str, text: str) -> None:
        notes.append({"code": code, "text": text})

    if ratio.n_trials == 2:
        note("provisional", "Two trials only: the result is provisional; measure at least three.")
    if known["bad_rows"]:
        left_out = len(known["bad_rows"])
        noun = "point was" if left_out == 1 else "points were"
        note("points_left_out", f"{left_out} invalid {noun} left out.")
    if known["dropped_levels"]:
        note(
            "levels_dropped",
            "Measured validly in one arm only, so not compared: concurrency "
            f"{', '.join(map(str, known['dropped_levels']))}.",
        )
    for arm, means in (("baseline", ratio.log_baseline), ("variant", ratio.log_variant)):
        if metric.operational_laws and (fall := _fall(ratio, means, settings)):
            note(
                "throughput_falls",
                f"The throughput of {known[arm]} itself falls by {100 * fall[2]:.0f} % from concurrency "
                f"{fall[0]} to {fall[1]}: look for preemption, a cap or a disturbed run.",
            )
    lengths = _output_lengths(usable)
    for level, (theirs, ours) in sorted(_unequal(lengths, known).items()):
        note(
            "output_length_differs",
            f"At concurrency {level} the answers of {known['variant']} have {ours:.4g} tokens on "
            f"average, those of {known['baseline']} {theirs:.4g}: not the same work.",
        )
    return notes


def _fall(ratio: LogRatio, means: np.ndarray, settings: Settings) -> tuple[int, int, float] | None:
    """(from, to, share) of the greatest fall of throughput between neighbouring levels, if real.

    A fall counts from twice the assumed variation of a difference of two runs.
    """
    if len(means) < 2 or not settings.assumed_cv:
        return None
    steps = np.diff(means)
    i = int(steps.argmin())
    if steps[i] > -2 * math.sqrt(2) * settings.assumed_cv:
        return None
    return int(ratio.levels[i]), int(ratio.levels[i + 1]), -math.expm1(steps[i])


def _output_lengths(usable: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """Mean output length by (variant, level), where it is known."""
    lengths = defaultdict(list)
    for point in usable:
        if (tokens := _number(point.get("output_tokens_mean"))) is not None:
            lengths[point["variant"], point["concurrency"]].append(tokens)
    return {key: float(np.mean(values)) for key, values in lengths.items()}


def _unequal(
    lengths: Mapping[tuple[str, int], float], known: Mapping[str, Any]
) -> dict[int, tuple[float, float]]:
    """(baseline, variant) mean output length at the levels where they differ too much."""
    pairs = {
        level: (tokens, lengths.get((known["variant"], level)))
        for (arm, level), tokens in lengths.items()
        if arm == known["baseline"]
    }
    return {
        level: (theirs, ours)
        for level, (theirs, ours) in pairs.items()
        if ours is not None and abs(ours - theirs) > OUTPUT_LENGTH_TOLERANCE * theirs
    }


def _notes_on_crossings(
    ratio: LogRatio,
    labels: Sequence[str],
    changes: Sequence[tuple[int, int]],
    crossings: Sequence[Crossing],
) -> list[dict[str, str]]:
    """Caveats about how well a crossing is known."""
    notes = []
    for (first, last), crossing in zip(changes, crossings, strict=True):
        inner = ratio.levels[first : last + 1]
        i = int(np.clip(np.searchsorted(inner, crossing.c_star), 1, len(inner) - 1))
        if crossing.coarse and inner[i] - inner[i - 1] > 1:
            notes.append(
                {
                    "code": "coarse_crossing",
                    "text": f"The crossing lies between the tested levels {inner[i - 1]} and "
                    f"{inner[i]}, too far apart to interpolate; measure levels in between.",
                }
            )
    inside = {i for first, last in changes for i in range(first, last + 1)}
    outside = [
        str(level) for i, level in enumerate(ratio.levels) if labels[i] == "?" and i not in inside
    ]
    if changes and outside:
        notes.append(
            {
                "code": "further_crossings_not_excluded",
                "text": f"Unresolved at concurrency {', '.join(outside)}: "
                "further crossings are not excluded there.",
            }
        )
    return notes
