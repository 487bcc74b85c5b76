"""What a verdict says: the contents of an entry of verdicts.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from crossover.verdict_sentence import sentence

if TYPE_CHECKING:
    from crossover.stats.curve import Crossing
    from crossover.stats.drift import Drift


@dataclass(frozen=True)
class Level:
    """The comparison at one level. `ratio` > 1: the variant is better.

    `lo`, `hi` are one-sided bounds that hold at all levels together (Šidák), `pointwise_lo`,
    `pointwise_hi` at this level alone; all four and `label` are None where nothing was repeated.
    Where an arm's goodput is 0 the ratio is 0, infinite or not a number: null in JSON but for 0.
    """

    concurrency: float
    """on `Verdict.axis`"""
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
    axis: str = "concurrency"
    """what levels and crossings are of: concurrency, or request_rate (per second, open loop);
    in JSON it is the key of a level"""
    reasons: tuple[str, ...] = ()
    caveats: tuple[dict[str, str], ...] = ()
    """{code, text}"""
    levels: tuple[Level, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    indicative: dict[str, Any] | None = None
    """{assumed_cv, labels}: a label a level under an assumed noise, where nothing was repeated"""
    censored: dict[str, Any] | None = None
    """{side, bound} where no sign changes: above, C* > bound; below, C* < bound"""
    dropped_levels: tuple[float, ...] = ()
    """levels that one arm alone has"""
    bad_rows: tuple[dict[str, Any], ...] = ()
    """points left out: {concurrency, variant, trial, reasons}"""
    feasible_max: dict[str, float | None] = field(default_factory=dict)
    """{baseline, variant}: highest level with a usable point"""
    paired: bool = False
    """differences within blocks were analysed"""
    n_trials: int = 0
    tau: float | None = None
    """standard deviation of the launch effect, in ln of the metric"""
    equivalence_margin_supported: float | None = None
    """smallest margin for which the arms would be found equivalent"""
    needed: tuple[dict[str, float | None], ...] = ()
    """{concurrency, trials, window_cv} of each unresolved level: trials that would resolve it, None:
    more than is sensible; noise within one window where these are too short, else None"""
    drift: Drift | None = None
    """change of the metric with the sessions' start time; None: start times are not known"""
    same_configuration: bool = False
    """both arms were the same server configuration: an A/A comparison"""
    noise_floor: float | None = None
    """relative difference that two identical servers may show, by the campaign's A/A arm"""
    parity: dict[str, Any] | None = None
    """what differs between the arms besides speculation (`crossover.parity`, docs/why.md)"""
    break_even: dict[str, Any] | None = None
    """why it crosses (`crossover.what_if`, docs/why.md); None: not judged, or not a throughput"""
    refinement: dict[str, Any] | None = None
    """{rounds, points, ended, text} (`crossover.refine`); None: no rounds, or not their metric"""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types without NaN, with the verdict's sentence under `sentence`."""
        return _plain({**asdict(self), "sentence": sentence(self)}, self.axis)

    def labelled(self, label: str) -> list[float]:
        """The levels with this label."""
        return [level.concurrency for level in self.levels if level.label == label]


def _plain(value: Any, axis: str) -> Any:
    if isinstance(value, Mapping):
        return {
            axis if key == "concurrency" else key: _plain(item, axis) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item, axis) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
