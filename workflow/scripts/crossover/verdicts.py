"""Every comparison of a campaign, judged: the contents of verdicts.json and policy.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crossover.policy import policy
from crossover.verdict import find_verdict

if TYPE_CHECKING:
    import pandas as pd

    from crossover.campaign import Campaign

SESSION_FACTS = ("host", "boot_id", "engine_version", "model_fingerprint")


def judge(
    points: pd.DataFrame, sessions: pd.DataFrame, campaign: Campaign
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Judge each of the campaign's comparisons under each of its workloads.

    Args:
        points: rows of records.POINTS.
        sessions: rows of records.SESSIONS; their facts decide which sessions form a block.

    Returns: what verdicts.json and what policy.json hold.
    """
    facts = sessions[["session_id", "started_at", *SESSION_FACTS]].rename(
        columns={"started_at": "session_started_at"}
    )
    facts["is_start_of_ours"] = sessions["command"].notna()
    points = points.merge(facts, on="session_id", how="left", validate="many_to_one")
    found = [
        find_verdict(
            points[points["workload"] == workload],
            campaign.analysis,
            variant=variant,
            baseline=reference,
            workload=workload,
        )
        for workload in campaign.workloads
        for variant, reference in campaign.comparisons
    ]
    verdicts = {
        "format": 1,
        "campaign": campaign.name,
        "settings": {
            "margin": campaign.analysis.margin,
            "confidence": campaign.analysis.confidence,
            "block_span_h": campaign.analysis.block_span_h,
        },
        "verdicts": [v.to_dict() for v in found],
    }
    return verdicts, policy(points, found, campaign.analysis)
