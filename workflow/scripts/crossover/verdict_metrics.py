"""What can be compared, which way it points, and on which axis."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from crossover.axis import CLOSED_LOOP, OPEN_LOOP, Axis
from crossover.errors import CampaignError


class Metric(NamedTuple):
    """What is compared. Ratios are turned so that > 1 means that the variant is better."""

    column: str
    """of `records.POINTS`, or made by `with_derived`"""
    title: str
    higher_is_better: bool = True
    operational_laws: bool = False
    """Does not fall with concurrency, nor rise faster than it, and is concave in ln C: the
    structural band and the hard bracket hold."""
    zero_is_loss: bool = False
    """0 is a result, and the worst; it has no logarithm and is judged outside the model."""
    cv_column: str | None = None
    """its within-run coefficient of variation"""


METRICS = {
    "output_throughput": Metric(
        "output_throughput_tokens_per_s",
        "Output throughput",
        operational_laws=True,
        cv_column="cv_within",
    ),
    "decode_rate": Metric("decode_rate_tokens_per_s", "Decode rate of a request"),
    "ttft": Metric("ttft_s_p50", "Time to first token", higher_is_better=False),
    "goodput": Metric("goodput_requests_per_s", "Goodput", zero_is_loss=True),
    "throughput_per_joule": Metric("output_tokens_per_j", "Output tokens per joule"),
}
"""By the names that `analysis.metric` takes."""


def metric_of(name: str) -> Metric:
    """The metric called `name`.

    Raises:
        CampaignError: there is none.
    """
    try:
        return METRICS[name]
    except KeyError:
        raise CampaignError(
            f"analysis.metric: {name!r} is no metric; allowed: {', '.join(METRICS)}"
        ) from None


def axis_of(points: pd.DataFrame) -> Axis:
    """The axis of a table of points: that of an open loop if any point has a request rate."""
    rated = OPEN_LOOP.name in points and points[OPEN_LOOP.name].notna().any()
    return OPEN_LOOP if rated else CLOSED_LOOP


def with_derived(points: pd.DataFrame) -> pd.DataFrame:
    """Points with the columns of metrics that follow from others.

    `decode_rate_tokens_per_s`: where it was not measured, as in imported results, 1 / median TPOT.
    `output_tokens_per_j`: output tokens of the window per joule that the point's GPUs took in it;
    null where no energy was read.
    """
    decode_rate = METRICS["decode_rate"].column
    if "tpot_s_p50" in points:
        tpot_s = points["tpot_s_p50"].astype(float)
        measured = points[decode_rate].astype(float) if decode_rate in points else float("nan")
        inverse = 1 / tpot_s.where(tpot_s > 0)
        points = points.assign(**{decode_rate: inverse.where(pd.isna(measured), measured)})
    if "gpu_energy_j" in points:
        energy_j = points["gpu_energy_j"].astype(float)
        tokens = points[METRICS["output_throughput"].column] * points["window_s"]
        column = METRICS["throughput_per_joule"].column
        points = points.assign(**{column: (tokens / energy_j).where(energy_j > 0)})
    return points
