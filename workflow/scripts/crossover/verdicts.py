"""Every comparison of a campaign, judged: the contents of verdicts.json and policy.json."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from crossover.agreement import ANSWER, greedy_agreement
from crossover.axis import CLOSED_LOOP
from crossover.goodput import with_goodput
from crossover.noise_floor import with_noise_floor
from crossover.parity import compare_arms
from crossover.policy import policy
from crossover.refine import outcome_of
from crossover.verdict import Verdict, find_verdict, settings_of
from crossover.verdict_metrics import METRICS, with_derived
from crossover.verdict_points import Arms
from crossover.what_if import break_even

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from crossover.campaign import Analysis, Campaign
    from crossover.parity import Parity
    from crossover.rounds import Round

SESSION_FACTS = (
    "host",
    "hardware",
    "boot_id",
    "engine_version",
    "model_fingerprint",
    "inherited_env",
)


def judge(
    points: pd.DataFrame,
    sessions: pd.DataFrame,
    campaign: Campaign,
    requests: str | os.PathLike[str] | None = None,
    rounds: Sequence[Round] = (),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Judge each of the campaign's comparisons under each of its workloads, on every metric.

    Args:
        points: rows of records.POINTS.
        sessions: rows of records.SESSIONS; their facts decide which sessions form a block.
        campaign: what is compared, and how.
        requests: Parquet file of records.REQUESTS; without it neither goodput nor the agreement
            of greedy answers is judged.
        rounds: of refinement, as planned.

    Returns: what verdicts.json and what policy.json hold.
    """
    primary = campaign.analysis.metric
    metrics = (primary, *(name for name in METRICS if name != primary))
    found, alike = _judged(points, sessions, campaign, requests, metrics)
    found = with_noise_floor(found)
    if campaign.refine.rounds:
        found = [
            replace(v, refinement=outcome_of(v, campaign, rounds)) if v.metric == primary else v
            for v in found
        ]
    slo = campaign.analysis.slo
    verdicts = {
        "format": 1,
        "campaign": campaign.name,
        "settings": {
            "margin": campaign.analysis.margin,
            "confidence": campaign.analysis.confidence,
            "alpha": campaign.analysis.alpha,
            "block_span_h": campaign.analysis.block_span_h,
            "metric": primary,
            "slo": slo and asdict(slo),
        },
        "verdicts": [v.to_dict() for v in found],
    }
    return verdicts, policy(alike, found, campaign.analysis, campaign.variants)


def judge_primary(
    points: pd.DataFrame,
    sessions: pd.DataFrame,
    campaign: Campaign,
    requests: str | os.PathLike[str],
) -> list[Verdict]:
    """Every comparison on the campaign's own metric alone; arguments as of `judge`."""
    return _judged(points, sessions, campaign, requests, (campaign.analysis.metric,))[0]


def _judged(
    points: pd.DataFrame,
    sessions: pd.DataFrame,
    campaign: Campaign,
    requests: str | os.PathLike[str] | None,
    metrics: Sequence[str],
) -> tuple[list[Verdict], pd.DataFrame]:
    """The verdicts on `metrics`, and the points of arms that can be compared."""
    facts = sessions[["session_id", "started_at", *SESSION_FACTS]].rename(
        columns={"started_at": "session_started_at"}
    )
    # of imported sessions, which have no protocol, it is not known who started them
    ours = sessions["command"].notna().astype(object)
    facts["is_start_of_ours"] = ours.where(sessions["protocol"].notna(), None)
    points = points.merge(facts, on="session_id", how="left", validate="many_to_one")
    slo = campaign.analysis.slo
    if slo is not None and requests is not None:
        points = with_goodput(points, requests, slo)
    points = with_derived(points)
    answers = None if requests is None else pd.read_parquet(requests, columns=ANSWER)
    found, alike = [], []
    for workload in campaign.workloads:
        of_workload = points[points["workload"] == workload]
        parities = list(_parities(of_workload, sessions, answers, campaign, workload))
        found += _verdicts(of_workload, sessions, parities, campaign, workload, metrics)
        for parity in parities:
            of_workload = parity.held_to(of_workload, [parity.variant])
        alike.append(of_workload)
    return found, pd.concat(alike)


def _parities(
    points: pd.DataFrame,
    sessions: pd.DataFrame,
    answers: pd.DataFrame | None,
    campaign: Campaign,
    workload: str,
) -> Iterator[Parity]:
    """Of every comparison. Answers are compared where they are not sampled."""
    greedy = answers is not None and not campaign.workloads[workload].temperature
    of_arm = {}
    if greedy:
        of_arm = dict(list(answers[answers["workload"] == workload].groupby("variant")))
    for variant, reference in campaign.comparisons:
        agreement = None
        if variant in of_arm and reference in of_arm:
            both = pd.concat([of_arm[variant], of_arm[reference]])
            agreement = greedy_agreement(both, variant, reference)
        yield compare_arms(points, sessions, variant, reference, agreement)


def _verdicts(
    points: pd.DataFrame,
    sessions: pd.DataFrame,
    parities: list[Parity],
    campaign: Campaign,
    workload: str,
    metrics: Sequence[str],
) -> Iterator[Verdict]:
    """All of a workload's comparisons, metric by metric.

    There is a verdict on another metric than the campaign's own only where both arms have data.
    """
    primary = campaign.analysis.metric
    for metric in metrics:
        for parity in parities:
            arms = {"variant": parity.variant, "baseline": parity.baseline}
            if metric != primary and not _have_data(points, metric, *arms.values()):
                continue
            held = parity.held_to(points)
            verdict = parity.applied_to(
                find_verdict(held, campaign.analysis, **arms, workload=workload, metric=metric)
            )
            yield _explained(verdict, held, sessions, campaign.analysis)


def _have_data(points: pd.DataFrame, metric: str, *variants: str) -> bool:
    column = METRICS[metric].column
    if column not in points:
        return False
    with_value = points[points[column].notna()]
    return set(variants) <= set(with_value["variant"])


def _explained(
    verdict: Verdict, points: pd.DataFrame, sessions: pd.DataFrame, analysis: Analysis
) -> Verdict:
    """The verdict with its step costs and what they predict, where it is on a throughput at equal
    concurrency.
    """
    if (
        verdict.metric != "output_throughput"
        or verdict.axis != CLOSED_LOOP.name
        or verdict.verdict == "not_comparable"
    ):
        return verdict
    settings = settings_of(analysis)
    arms = Arms.of(
        points,
        METRICS[verdict.metric],
        settings,
        points["variant"].unique(),
        analysis.block_span_h,
    )
    explained = break_even(
        pd.DataFrame(arms.usable),
        sessions,
        arms.observations,
        variant=verdict.variant,
        baseline=verdict.baseline,
        acceptance_lengths=analysis.what_if.acceptance_length if analysis.what_if else (),
        settings=settings,
    )
    return replace(verdict, break_even=explained.to_dict())
