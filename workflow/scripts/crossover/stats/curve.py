"""The log ratio between the measured levels: the crossover C* and its interval.

Everything is a function of x = ln C. Nothing assumes that the ratio is monotone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtr

if TYPE_CHECKING:
    from crossover.stats.model import LogRatio, Settings

ROUGHNESS = np.geomspace(0.02, 2.56, 15)
"""Roughness σ of the spline's integrated Wiener process, averaged over."""

GRID_PER_UNIT = 100
"""Points per unit of ln C at which the probability is evaluated: 1 % in C."""


@dataclass(frozen=True)
class Crossing:
    """One change of sign of ln(variant / baseline)."""

    direction: str
    """down: the variant is faster below it; up: above it"""
    bracket: tuple[float, float]
    """the measured levels with opposite signs on either side"""
    c_star: float
    """concurrency at which the ratio is as likely above as below 1"""
    ci: tuple[float, float]
    """interval of C*, at the confidence asked for"""
    hard: tuple[float, float]
    """where C* lies by the operational laws and the bounds at the bracket's ends alone"""
    coarse: bool
    """C* lies in a gap too wide to interpolate: measure between before quoting it"""


def find_crossing(
    fit: LogRatio, first: int, last: int, *, up: bool, laws: bool, settings: Settings
) -> Crossing:
    """C* between the levels at indices `first` and `last`, by inverting the test of r(C) = 0.

    The interval holds all C with p ≤ P(r(C) > 0) ≤ 1 - p, p = (1 - confidence)/2; one point is
    covered, so pointwise inversion suffices (Fieller 1954). `hard` is the raw bracket here:
    `hard_bracket` narrows it.

    Args:
        fit: the ratio at the levels, with finite covariance.
        first: index of the last level of one sign.
        last: index of the first level of the other.
        up: whether the variant is better above C*.
        laws: the metric is an output throughput, which obeys the operational laws.
        settings: `confidence` and `coarse_gap`.
    """
    x = np.log(fit.levels)
    steps = int((x[last] - x[first]) * GRID_PER_UNIT) + 2
    grid = np.unique(np.r_[np.linspace(x[first], x[last], steps), x[first : last + 1]])
    wide = np.diff(x)[np.clip(_gap(x, grid), first, last - 1)] > settings.coarse_gap

    positive = np.empty(len(grid))
    banded = wide & laws
    if banded.any():
        positive[banded] = _probability_in_band(fit, x, grid[banded])
    if not banded.all():
        positive[~banded] = _probability_on_spline(fit, x, grid[~banded])

    rising = positive if up else 1 - positive
    tail = (1 - settings.confidence) / 2
    star = _first_reaching(grid, rising, 0.5)
    ends = (_first_reaching(grid, rising, tail), _last_below(grid, rising, 1 - tail))
    gap = int(_gap(x, np.array([star]))[0])
    bracket = (fit.levels[first].item(), fit.levels[last].item())
    return Crossing(
        direction="up" if up else "down",
        bracket=bracket,
        c_star=math.exp(star),
        ci=(math.exp(ends[0]), math.exp(ends[1])),
        hard=(float(bracket[0]), float(bracket[1])),
        coarse=bool(x[gap + 1] - x[gap] > settings.coarse_gap),
    )


def nowhere_between(low: float, high: float, *, up: bool) -> Crossing:
    """A crossing of which only its bracket is known: an arm has no logarithm at one end of it.

    C* is the bracket's geometric middle, for want of anything better; its interval the bracket.
    """
    ends = (float(low), float(high))
    return Crossing("up" if up else "down", (low, high), math.sqrt(low * high), ends, ends, True)


def hard_bracket(
    bracket: tuple[float, float], least: tuple[float, float]
) -> tuple[float, float] | None:
    """Where C* can lie if the log ratio changes by at most ln of the change of C.

    Throughput does not fall with C and the rate of one client does not rise, so ln ratio is
    1-Lipschitz in ln C: where |ln ratio| ≥ d, no crossing is nearer than a factor e^d.

    Args:
        bracket: levels with opposite signs.
        least: |ln ratio| at each of them is at least this (simultaneous bounds).

    Returns:
        The narrowed bracket; None if nothing is left of it: the laws do not hold.
    """
    low, high = bracket[0] * math.exp(least[0]), bracket[1] * math.exp(-least[1])
    return (low, high) if low < high else None


def _gap(x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Index i of the gap [x_i, x_i+1] that holds each abscissa."""
    return np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)


def _nearest_df(fit: LogRatio, x: np.ndarray, at: np.ndarray) -> np.ndarray:
    nearest = np.abs(at[:, None] - x).argmin(axis=1)
    return np.clip(fit.df[nearest], 1, 1e6)


# ------------------------------------------------------------------ coarse gaps


def structural_band(
    x: np.ndarray, y: np.ndarray, variance: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of ln T between levels: ln T is non-decreasing, of slope ≤ 1 and concave in ln C.

    Lower bound: the chord. Upper bound: the lesser of the neighbouring chords extended, with
    slope 1 before the first level and 0 after the last. Where the slopes contradict concavity by
    more than twice their standard errors, slopes 0 and 1 bound both sides.

    Args:
        x: ln C of the levels.
        y: ln T there.
        variance: of `y`.
        at: abscissae between the levels.
    """
    gap = _gap(x, at)
    width = np.diff(x)
    slope = np.diff(y) / width
    error = 2 * np.sqrt(variance[1:] + variance[:-1]) / width
    before = np.r_[1.0, np.minimum(slope[:-1], 1.0)][gap]
    after = np.r_[np.maximum(slope[1:], 0.0), 0.0][gap]
    before_error, after_error = np.r_[0.0, error[:-1]][gap], np.r_[error[1:], 0.0][gap]
    here, here_error = slope[gap], error[gap]
    concave = (before >= here - here_error - before_error) & (
        after <= here + here_error + after_error
    )
    steepest = np.maximum(np.where(concave, before, 1.0), here)
    flattest = np.minimum(np.where(concave, after, 0.0), here)

    left, right = at - x[gap], x[gap + 1] - at
    chord = (y[gap] * right + y[gap + 1] * left) / width[gap]
    upper = np.minimum(y[gap] + steepest * left, y[gap + 1] - flattest * right)
    lower = np.maximum(y[gap] + flattest * left, y[gap + 1] - steepest * right)
    lower = np.where(concave, chord, lower)
    return np.minimum(lower, chord), np.maximum(upper, chord)


def _probability_in_band(fit: LogRatio, x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """P(r > 0): interpolation error uniform in the band, t noise of the two adjacent levels."""
    baseline = structural_band(x, fit.log_baseline, fit.baseline_variance, at)
    variant = structural_band(x, fit.log_variant, fit.variant_variance, at)
    lowest, highest = variant[0] - baseline[1], variant[1] - baseline[0]
    share = (np.arange(20) + 0.5) / 20
    r = lowest[:, None] + share * (highest - lowest)[:, None]

    i = _gap(x, at)
    weight = (at - x[i]) / (x[i + 1] - x[i])
    v = fit.covariance
    variance = (
        (1 - weight) ** 2 * v[i, i]
        + weight**2 * v[i + 1, i + 1]
        + 2 * weight * (1 - weight) * v[i, i + 1]
    )
    se = np.sqrt(np.maximum(variance, 1e-24))
    return stdtr(_nearest_df(fit, x, at)[:, None], r / se[:, None]).mean(axis=1)


# ------------------------------------------------------------------ fine gaps


def _probability_on_spline(fit: LogRatio, x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """P(r > 0) under the posterior of a cubic smoothing spline (Wahba 1983).

    r(x) = a line with diffuse prior + σ·(integrated Wiener process), noise covariance V, averaged
    over σ with weights REML(σ)·σ⁻².
    """
    knots, to = x - x[0], at - x[0]
    line, line_at = (np.column_stack([np.ones(len(s)), s]) for s in (knots, to))
    kernel, kernel_at, kernel_diagonal = _wiener(knots, knots), _wiener(to, knots), to**3 / 3
    df = _nearest_df(fit, x, at)

    log_weights, probabilities = [], []
    for sigma in ROUGHNESS:
        total = sigma**2 * kernel + fit.covariance
        cross = sigma**2 * kernel_at
        solved = np.linalg.solve(total, np.column_stack([line, fit.log_ratio, cross.T]))
        by_line, by_ratio, by_cross = solved[:, :2], solved[:, 2], solved[:, 3:]
        information = line.T @ by_line
        beta = np.linalg.solve(information, line.T @ by_ratio)
        error = fit.log_ratio - line @ beta
        by_error = by_ratio - by_line @ beta
        mean = line_at @ beta + cross @ by_error
        unexplained = line_at - cross @ by_line
        variance = (
            sigma**2 * kernel_diagonal
            - np.einsum("ij,ji->i", cross, by_cross)
            + np.einsum("ij,ji->i", unexplained, np.linalg.solve(information, unexplained.T))
        )
        probabilities.append(stdtr(df, mean / np.sqrt(np.maximum(variance, 1e-18))))
        reml = np.linalg.slogdet(total)[1] + np.linalg.slogdet(information)[1] + error @ by_error
        log_weights.append(-0.5 * reml - 2 * math.log(sigma))
    weights = np.exp(np.array(log_weights) - max(log_weights))
    return weights / weights.sum() @ np.array(probabilities)


def _wiener(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Covariance of an integrated Wiener process that starts at 0."""
    lesser = np.minimum.outer(s, t)
    return lesser**3 / 3 + np.abs(np.subtract.outer(s, t)) * lesser**2 / 2


# ------------------------------------------------------------------ where a probability passes


def _first_reaching(x: np.ndarray, p: np.ndarray, level: float) -> float:
    """First abscissa where the piecewise linear `p` reaches `level`; the right end if never."""
    reached = np.flatnonzero(p >= level)
    if len(reached) == 0:
        return float(x[-1])
    k = reached[0]
    return float(x[0] if k == 0 else _between(x, p, k - 1, level))


def _last_below(x: np.ndarray, p: np.ndarray, level: float) -> float:
    """Last abscissa where the piecewise linear `p` is at most `level`; the left end if never."""
    below = np.flatnonzero(p <= level)
    if len(below) == 0:
        return float(x[0])
    k = below[-1]
    return float(x[-1] if k == len(x) - 1 else _between(x, p, k, level))


def _between(x: np.ndarray, p: np.ndarray, k: int, level: float) -> float:
    return x[k] + (x[k + 1] - x[k]) * (level - p[k]) / max(p[k + 1] - p[k], 1e-300)
