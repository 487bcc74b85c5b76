"""The hierarchical log model: the ratio of two arms at each level, launches as replicates.

y_gij = ln T = μ_gi + a_gj + e_gij for configuration g, level i, launch j: `a` is the effect of one
server start, shared by all levels measured in it; `e` is the rest. Levels of one launch are
therefore never treated as independent replicates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

PRIOR_DOF = 4.0
"""Weight of the pooled variance in a level's own one, as degrees of freedom (Smyth 2004, d0)."""

MIN_VARIANCE = 0.001**2
"""No level is taken to repeat more closely than 0.1 %."""

PAIRED_BLOCKS = 3
"""Fewest trials that are analysed as pairs."""

PAIRED_SHARE = 0.9
"""Least share of (level, block) cells with both arms for an analysis as pairs."""


@dataclass(frozen=True)
class Settings:
    """What a verdict is held to.

    `alpha` is the error of the verdict's one-sided bounds, `confidence` that of C*'s interval;
    they part ways when the data are looked at after every trial (`Analysis.alpha`).
    """

    margin: float = 0.02
    alpha: float = 0.05
    confidence: float = 0.95
    pairing: str = "auto"
    """auto: decided by the design (`_is_paired`); paired or unpaired: as told."""
    assumed_cv: float | None = 0.03
    """Run-to-run variation assumed where nothing was repeated; None: no indicative labels."""
    max_error_share: float = 0.01
    min_launches: int = 2
    coarse_gap: float = 0.30
    """Gap between levels, in ln C, above which only the structural band is trusted."""


@dataclass(frozen=True)
class Observation:
    """One usable point of one arm. `log_value` is oriented: greater is better."""

    level: float
    trial: Hashable
    launch: Hashable
    """the server start it was measured in"""
    block: Hashable
    """the launches that ran together with this one (`crossover.blocks`)"""
    log_value: float
    cv_within: float = 0.0
    started_at: float | None = None
    """Unix seconds at which the launch began; None: not known"""


@dataclass(frozen=True)
class LogRatio:
    """ln(variant / baseline) at the levels that both arms have; arrays of one entry a level.

    Covariance, `se` and `df` are NaN where no residual degree of freedom is left: nothing was
    repeated, or there is one level alone; then `reasons` is not empty. The variances are those of
    the arms' means; in a paired fit both are that of the difference.
    """

    levels: np.ndarray
    log_ratio: np.ndarray
    covariance: np.ndarray
    df: np.ndarray
    log_baseline: np.ndarray
    baseline_variance: np.ndarray
    variant_variance: np.ndarray
    baseline_trials: np.ndarray
    variant_trials: np.ndarray
    paired: bool
    n_trials: int
    tau: float
    """standard deviation of the launch effect, in ln T"""
    window_cv: np.ndarray
    """noise within a window, of the worse arm; NaN where trials scatter more than it explains"""
    reasons: tuple[str, ...]

    @property
    def log_variant(self) -> np.ndarray:
        """Ln T of the variant, as `log_baseline`."""
        return self.log_baseline + self.log_ratio

    @property
    def se(self) -> np.ndarray:
        """Standard errors of `log_ratio`."""
        return np.sqrt(np.diag(self.covariance))


def fit(
    baseline: Sequence[Observation], variant: Sequence[Observation], settings: Settings
) -> LogRatio | None:
    """Fit the model to the levels that both arms have; None if there is no such level."""
    of_baseline, of_variant = ({o.level for o in arm} for arm in (baseline, variant))
    common = sorted(of_baseline & of_variant)
    if not common:
        return None
    baseline = [o for o in baseline if o.level in of_variant]
    variant = [o for o in variant if o.level in of_baseline]

    matched = _matched(baseline, variant)
    paired = _is_paired(baseline, variant, matched, settings)
    if paired:
        arms = [_Table.of(_differences(baseline, variant, matched))]
        n_trials = len({o.trial for o in baseline if (o.level, o.block) in matched})
    else:
        arms = [_Table.of(_cells(baseline)), _Table.of(_cells(variant))]
        n_trials = min(len({o.trial for o in arm}) for arm in (baseline, variant))
    noises = [_noise(arm) for arm in arms]
    tau2, tau_dof = _launch_variance(arms, noises)
    means, covariances = zip(*(map(_level_means, arms, noises, [tau2] * len(arms))), strict=True)

    covariance = sum(covariances)
    if paired:
        log_ratio = means[0]
        by_level = [[o.log_value for o in baseline if o.level == level] for level in common]
        log_baseline = np.array([np.mean(values) for values in by_level])
    else:
        log_ratio = means[1] - means[0]
        log_baseline = means[0]

    reasons = []
    launches = min(arm.n_launches for arm in arms)
    replicated = bool(np.isfinite(covariance).all())
    if launches < settings.min_launches or (n_trials < settings.min_launches and not replicated):
        reasons.append("single_repeat")
    elif not replicated:
        reasons.append("no_replication")
    return LogRatio(
        levels=np.array(common),
        log_ratio=log_ratio,
        covariance=covariance,
        df=_satterthwaite(arms, noises, covariance, tau_dof),
        log_baseline=log_baseline,
        baseline_variance=np.diag(covariances[0]),
        variant_variance=np.diag(covariances[-1]),
        baseline_trials=_trials_by_level(baseline, common),
        variant_trials=_trials_by_level(variant, common),
        paired=paired,
        n_trials=n_trials,
        tau=float(np.sqrt(tau2)),
        window_cv=np.fmax.reduce([noise.window_cv for noise in noises]),
        reasons=tuple(reasons),
    )


def _trials_by_level(arm: Iterable[Observation], levels: Sequence[int]) -> np.ndarray:
    trials = defaultdict(set)
    for o in arm:
        trials[o.level].add(o.trial)
    return np.array([len(trials[level]) for level in levels])


# ------------------------------------------------------------------ cells and pairing


_Cells = Mapping[tuple[int, Hashable], tuple[float, float]]
"""(level, launch) → (mean of ln T, mean cv_within)"""


def _cells(arm: Iterable[Observation]) -> _Cells:
    cells = defaultdict(list)
    for o in arm:
        cells[o.level, o.launch].append((o.log_value, o.cv_within))
    return {cell: tuple(np.mean(values, axis=0)) for cell, values in cells.items()}


def _matched(
    baseline: Iterable[Observation], variant: Iterable[Observation]
) -> set[tuple[int, Hashable]]:
    """(level, block) cells that both arms have."""
    return {(o.level, o.block) for o in baseline} & {(o.level, o.block) for o in variant}


def _is_paired(
    baseline: Sequence[Observation],
    variant: Sequence[Observation],
    matched: set[tuple[int, Hashable]],
    settings: Settings,
) -> bool:
    """Whether to analyse differences within blocks: a rule on the design, not on the values."""
    everything = [*baseline, *variant]
    if {level for level, _ in matched} != {o.level for o in everything}:
        return False
    if settings.pairing != "auto":
        return settings.pairing == "paired"
    trials = {o.trial for o in everything if (o.level, o.block) in matched}
    cells = {(o.level, o.block) for o in everything}
    return len(trials) >= PAIRED_BLOCKS and len(matched) >= PAIRED_SHARE * len(cells)


def _differences(
    baseline: Iterable[Observation],
    variant: Iterable[Observation],
    matched: set[tuple[int, Hashable]],
) -> _Cells:
    """The difference of ln T, variant - baseline, in each matched cell; a launch per pair of launches.

    The noise within a run gives no floor here: the prompts that make it are shared by the arms.
    """

    def gather(arm: Iterable[Observation]) -> dict[tuple[int, Hashable], list[Observation]]:
        cells = defaultdict(list)
        for o in arm:
            cells[o.level, o.block].append(o)
        return cells

    def mean(cell: Iterable[Observation]) -> float:
        return float(np.mean([o.log_value for o in cell]))

    def launches(cell: Iterable[Observation]) -> tuple[str, ...]:
        return tuple(sorted({str(o.launch) for o in cell}))

    b, v = gather(baseline), gather(variant)
    return {
        (cell[0], (launches(b[cell]), launches(v[cell]))): (mean(v[cell]) - mean(b[cell]), 0.0)
        for cell in matched
    }


# ------------------------------------------------------------------ one configuration


@dataclass(frozen=True)
class _Table:
    """The cells of one configuration as arrays of one entry a cell."""

    level: np.ndarray
    launch: np.ndarray
    y: np.ndarray
    within_variance: np.ndarray
    n_levels: int
    n_launches: int

    @classmethod
    def of(cls, cells: _Cells) -> _Table:
        keys = sorted(cells, key=lambda cell: (cell[0], str(cell[1])))
        levels = {level: i for i, level in enumerate(sorted({level for level, _ in keys}))}
        launches = {j: i for i, j in enumerate(sorted({j for _, j in keys}, key=str))}
        return cls(
            level=np.array([levels[level] for level, _ in keys]),
            launch=np.array([launches[launch] for _, launch in keys]),
            y=np.array([cells[key][0] for key in keys]),
            within_variance=np.array([cells[key][1] ** 2 for key in keys]),
            n_levels=len(levels),
            n_launches=len(launches),
        )

    @property
    def repeats(self) -> np.ndarray:
        """Launches at each level."""
        return np.bincount(self.level, minlength=self.n_levels)

    def level_matrix(self) -> np.ndarray:
        return np.eye(self.n_levels)[self.level]

    def launch_matrix(self) -> np.ndarray:
        return np.eye(self.n_launches)[self.launch]

    def islands(self) -> np.ndarray:
        """For each launch: which group of launches, connected by common levels, it belongs to."""
        n = self.n_launches + self.n_levels
        edges = (np.ones(len(self.y)), (self.launch, self.n_launches + self.level))
        return connected_components(coo_array(edges, shape=(n, n)), directed=False)[1][
            : self.n_launches
        ]


@dataclass(frozen=True)
class _Noise:
    """What varies between cells of one configuration besides level and launch."""

    variance: np.ndarray
    """moderated, by level; NaN where nothing was repeated"""
    dof: np.ndarray
    """by level"""
    window_cv: np.ndarray
    """by level: root mean square of cv_within where that sets the variance, else NaN"""
    launch_effect: np.ndarray
    residual_dof: int


def _noise(arm: _Table) -> _Noise:
    """Residual variance by level, moderated towards the pooled one (Smyth 2004).

    v_i = max{(d0·s0² + ν_i·s_i²)/(d0 + ν_i), mean cv_within², 0.001²}, with q the residuals of
    level + launch, s0² = Σq²/dof, ν_i = (n_i - 1)·dof/Σ(n - 1), s_i² = Σ_j q²/ν_i.
    """
    residual, dof, launch_effect = _two_way(arm)
    spare = arm.repeats - 1
    window_cv = np.full(arm.n_levels, np.nan)
    nu = spare * (dof / max(spare.sum(), 1))
    if dof > 0:
        pooled = (residual**2).sum() / dof
        squares = np.bincount(arm.level, residual**2, minlength=arm.n_levels)
        own = np.divide(squares, nu, out=np.zeros(arm.n_levels), where=nu > 0)
        variance = (PRIOR_DOF * pooled + nu * own) / (PRIOR_DOF + nu)
        within = np.bincount(arm.level, arm.within_variance, minlength=arm.n_levels) / arm.repeats
        variance = np.maximum(variance, MIN_VARIANCE)
        window_cv[within > variance] = np.sqrt(within[within > variance])
        variance = np.maximum(variance, within)
    else:
        variance = np.full(arm.n_levels, np.nan)
    return _Noise(variance, min(PRIOR_DOF, dof) + nu, window_cv, launch_effect, dof)


def _two_way(arm: _Table) -> tuple[np.ndarray, int, np.ndarray]:
    """Least squares of y on level + launch: residuals, their dof, launch effects (sum zero)."""
    design = np.hstack([arm.level_matrix(), arm.launch_matrix()])
    constraint = np.r_[np.zeros(arm.n_levels), np.ones(arm.n_launches)]
    solution, _, rank, _ = np.linalg.lstsq(
        np.vstack([design, constraint]), np.r_[arm.y, 0.0], rcond=None
    )
    dof = max(len(arm.y) - (int(rank) - 1), 0)
    return arm.y - design @ solution, dof, solution[arm.n_levels :]


def _launch_variance(arms: Sequence[_Table], noises: Sequence[_Noise]) -> tuple[float, int]:
    """Variance τ² of the launch effect, pooled over the configurations, and its dof.

    τ² = max{0, [Σ_gΣ_j(â_gj - ā_g)² - Σ_g(R_g - 1)·mean_j(v̄_gj/m_gj)]/ν_A}, m_gj the levels of
    launch j that other launches have too. Launches that share no level, directly or through
    others, cannot be told from their levels: effects are centred within each connected group,
    so that a level added later in sessions of its own does not pass for launch noise.
    """
    squares, expected, dof = 0.0, 0.0, 0
    for arm, noise in zip(arms, noises, strict=True):
        if noise.residual_dof == 0 or arm.n_levels < 2:
            continue
        shared = arm.repeats[arm.level] >= 2
        launch = arm.launch[shared]
        m = np.bincount(launch, minlength=arm.n_launches)
        v = np.bincount(launch, noise.variance[arm.level[shared]], minlength=arm.n_launches)
        islands = arm.islands()
        for island in np.unique(islands):
            members = np.flatnonzero((islands == island) & (m > 0))
            if len(members) < 2:
                continue
            effect = noise.launch_effect[members]
            squares += ((effect - effect.mean()) ** 2).sum()
            expected += (len(members) - 1) * (v[members] / m[members] ** 2).mean()
            dof += len(members) - 1
    return (max((squares - expected) / dof, 0.0) if dof else 0.0), dof


def _level_means(arm: _Table, noise: _Noise, tau2: float) -> tuple[np.ndarray, np.ndarray]:
    """Means by level and their covariance: GLS with Cov(y) = τ²ZZ′ + diag(v)."""
    if noise.residual_dof == 0:
        means = np.bincount(arm.level, arm.y, minlength=arm.n_levels) / arm.repeats
        return means, np.full((arm.n_levels, arm.n_levels), np.nan)
    levels, launches = arm.level_matrix(), arm.launch_matrix()
    spread = tau2 * launches @ launches.T + np.diag(noise.variance[arm.level])
    weighted = np.linalg.solve(spread, levels).T
    covariance = np.linalg.inv(weighted @ levels)
    return covariance @ (weighted @ arm.y), covariance


def _satterthwaite(
    arms: Sequence[_Table], noises: Sequence[_Noise], covariance: np.ndarray, tau_dof: int
) -> np.ndarray:
    """Degrees of freedom of the log ratio by level (Satterthwaite 1946).

    df_i = V_ii²/(A_i²/ν_A + Σ_g B_gi²/ν_gi), B_gi = v_gi(1 - 1/L_g)/n_gi the part of the variance
    that comes from the cells, A_i = max(V_ii - ΣB, 0) the part that comes from the launches.
    """
    total = np.diag(covariance)
    cells = np.array(
        [
            noise.variance * (1 - 1 / max(arm.n_levels, 2)) / arm.repeats
            for arm, noise in zip(arms, noises, strict=True)
        ]
    )
    cell_dof = np.maximum([noise.dof for noise in noises], 1e-9)
    launch = np.maximum(total - cells.sum(axis=0), 0.0)
    return total**2 / (launch**2 / max(tau_dof, 1e-9) + (cells**2 / cell_dof).sum(axis=0))
