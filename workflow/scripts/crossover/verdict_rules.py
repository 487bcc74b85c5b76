"""The rules of docs/verdict.md: from ratios to a class, crossings and what is missing."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri, stdtrit

from crossover.stats.curve import find_crossing, hard_bracket, nowhere_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from crossover.stats.curve import Crossing
    from crossover.stats.model import LogRatio, Settings
    from crossover.verdict_zeros import ZeroLevel

MAX_TRIALS = 40
"""More trials than this are not worth asking for: 4 × a budget of 10."""


@dataclass(frozen=True)
class Bounds:
    """One-sided bounds of the log ratio; arrays of one entry a level."""

    levels: np.ndarray
    log_ratio: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    pointwise_lo: np.ndarray
    pointwise_hi: np.ndarray

    @classmethod
    def of(cls, ratio: LogRatio, alpha: float, arms: int = 1) -> Bounds:
        """Of a fitted ratio, `lo` and `hi` simultaneous over its levels (Šidák).

        Lower bounds hold at alpha / `arms`, as the envelope over several variants needs them;
        upper bounds at alpha. Without a standard error they are infinite.
        """
        n, r = len(ratio.levels), ratio.log_ratio
        se = np.maximum(ratio.se, 1e-12)
        down, up = alpha / arms, alpha

        def noise(confidence: float) -> np.ndarray:
            return np.nan_to_num(stdtrit(ratio.df, confidence) * se, nan=math.inf)

        return cls(
            levels=ratio.levels,
            log_ratio=r,
            lo=r - noise(_sidak(down, n)),
            hi=r + noise(_sidak(up, n)),
            pointwise_lo=r - noise(1 - down),
            pointwise_hi=r + noise(1 - up),
        )

    @classmethod
    def of_zeros(cls, zeros: Sequence[ZeroLevel]) -> Bounds:
        """Of levels outside the log model: infinite on the losing side, or on both."""
        lo, hi = np.array([zero.bounds for zero in zeros]).T
        levels = np.array([zero.level for zero in zeros])
        return cls(levels, np.array([zero.log_ratio for zero in zeros]), lo, hi, lo, hi)

    def __or__(self, other: Bounds) -> Bounds:
        """Those of both, by level."""
        both = {name: np.r_[ours, vars(other)[name]] for name, ours in vars(self).items()}
        order = np.argsort(both["levels"])
        return Bounds(**{name: values[order] for name, values in both.items()})

    @property
    def labels(self) -> list[str]:
        """+ variant better, - baseline better, ? unresolved."""
        return [
            "+" if lo > 0 else "-" if hi < 0 else "?"
            for lo, hi in zip(self.lo, self.hi, strict=True)
        ]


def _sidak(alpha: float, n: int) -> float:
    """The one-sided confidence at each of `n` levels that gives 1 - alpha at all (Šidák)."""
    return (1 - alpha) ** (1 / n)


def sign_changes(labels: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of indices of neighbouring labels with opposite signs, unresolved ones passed over."""
    signed = [i for i, label in enumerate(labels) if label != "?"]
    pairs = itertools.pairwise(signed)
    return [(i, j) for i, j in pairs if labels[i] != labels[j]]


def verdict_class(bounds: Bounds, margin: float) -> str:
    """The first class of docs/verdict.md that the bounds show; `margin` is in ln.

    Claims about all levels are intersection-union tests (Schuirmann 1987) and use pointwise
    bounds; a crossing is a claim about some level and rests on labels from simultaneous ones.
    """
    labels, r = bounds.labels, bounds.log_ratio
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
    n_changes = len(sign_changes(labels))
    return {0: "inconclusive", 1: "crossover"}.get(n_changes, "multiple_crossovers")


def crossings_of(
    ratio: LogRatio | None, bounds: Bounds, *, laws: bool, settings: Settings
) -> tuple[list[Crossing], int]:
    """The crossings, and how many of them contradict the operational laws.

    Args:
        ratio: the fitted levels; None: every level is outside the log model.
        bounds: of all levels.
        laws: the metric is an output throughput in a closed loop, which obeys them.
        settings: of the verdict.
    """
    crossings, violated = [], 0
    fitted = [] if ratio is None else ratio.levels.tolist()
    least = np.maximum(bounds.lo, -bounds.hi)
    for first, last in sign_changes(bounds.labels):
        ends = bounds.levels[[first, last]].tolist()
        up = bool(bounds.lo[last] > 0)
        if not set(ends) <= set(fitted):
            crossings.append(nowhere_between(*ends, up=up))
            continue
        crossing = find_crossing(
            ratio, *map(fitted.index, ends), up=up, laws=laws, settings=settings
        )
        if laws:
            hard = hard_bracket(crossing.bracket, (least[first], least[last]))
            violated += hard is None
            crossing = replace(crossing, hard=hard or crossing.hard)
        crossings.append(crossing)
    return crossings, violated


def censored(bounds: Bounds) -> dict[str, Any] | None:
    """Where C* is said not to be, if no sign changes."""
    labels = bounds.labels
    signs = set(labels) - {"?"}
    if len(signs) != 1:
        return None
    pairs = zip(bounds.levels.tolist(), labels, strict=True)
    signed = [level for level, label in pairs if label != "?"]
    if signs == {"+"}:
        return {"side": "above", "bound": max(signed)}
    return {"side": "below", "bound": min(signed)}


def needed(ratio: LogRatio, steady: LogRatio, alpha: float) -> Iterable[dict[str, float | None]]:
    """Trials that would resolve each unresolved level: R·(t·se/|r|)².

    None of a level that stands alone: no trials of it tell its noise.

    Args:
        ratio: as fitted.
        steady: the same fit without the noise within windows. Where it would need at most half of
            the trials, and a sensible number, the windows are too short: `window_cv` is then their
            noise, else None.
        alpha: of the bounds.
    """
    bounds = Bounds.of(ratio, alpha)
    is_open = (np.array(bounds.labels) == "?") & np.isfinite(bounds.hi)
    trials, of_steady = _trials_to_a_sign(ratio, alpha), _trials_to_a_sign(steady, alpha)
    limited = np.isfinite(ratio.window_cv) & (of_steady <= np.minimum(trials / 2, MAX_TRIALS))
    for i in np.flatnonzero(is_open):
        done = min(ratio.baseline_trials[i], ratio.variant_trials[i])
        most = max(math.ceil(trials[i]), int(done) + 1)
        yield {
            "concurrency": ratio.levels[i].item(),
            "trials": most if most <= MAX_TRIALS else None,
            "window_cv": ratio.window_cv[i].item() if limited[i] else None,
        }


def _trials_to_a_sign(ratio: LogRatio, alpha: float) -> np.ndarray:
    """By level, not rounded; infinite where nothing tells the noise."""
    bounds = Bounds.of(ratio, alpha)
    size = np.maximum(np.abs(ratio.log_ratio), 1e-9)
    done = np.minimum(ratio.baseline_trials, ratio.variant_trials)
    return done * ((bounds.hi - bounds.log_ratio) / size) ** 2


def indicative(log_ratio: np.ndarray, settings: Settings) -> dict[str, Any] | None:
    """Labels under an assumed run-to-run variation: ±z·√2·CV, z Šidák-adjusted."""
    if not settings.assumed_cv:
        return None
    z = ndtri(_sidak(settings.alpha, len(log_ratio)))
    bound = z * math.sqrt(2) * settings.assumed_cv
    labels = ["+" if r > bound else "-" if r < -bound else "?" for r in log_ratio]
    return {"assumed_cv": settings.assumed_cv, "labels": labels}
