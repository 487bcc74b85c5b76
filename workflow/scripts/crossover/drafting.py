"""What an arm drafts and what of it is accepted, by the engine's counters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

DRAFTS_FROM_TEXT = re.compile(r"n-?gram|suffix|lookup", re.IGNORECASE)
"""Methods that draft only where the text repeats itself: another text drafts at other steps."""

VERIFYING_SHARE = 0.9
"""Least share of steps that verify a draft, of those that can: requests cut off at the end of a
point may lack their last step."""

DRAFT_SPREAD = 0.05
"""Relative spread of the drafted tokens a step that still counts as constant."""


def tokens_per_step(points: pd.DataFrame) -> dict[float, float]:
    """A by level, the geometric mean over an arm's points; without levels where it is not known."""
    known = points[points["tokens_per_step"] > 0]
    means = np.log(known["tokens_per_step"].astype(float)).groupby(known["concurrency"]).mean()
    return np.exp(means).to_dict()


def varies(points: pd.DataFrame, methods: Iterable[str | None]) -> str | None:
    """Why an arm's drafting is not known to be the same in every step; None if it is.

    Only where each step drafts alike does the cost of a step not depend on the text.

    Args:
        points: of the arm.
        methods: its speculation methods, as declared and as the server gives them.

    Returns:
        drafts_from_text: by its method; drafting_varies: steps without a draft, or drafts of
        different lengths; drafting_unknown: the engine does not count verifications.
    """
    if any(DRAFTS_FROM_TEXT.search(method) for method in methods if method):
        return "drafts_from_text"
    counted = points[["verify_steps", "engine_output_tokens", "accepted_tokens", "requests"]]
    counted = counted.astype(float).dropna()
    if counted.empty or len(counted) < len(points):
        return "drafting_unknown"
    # the first token of every answer comes from its prefill
    can_verify = counted["engine_output_tokens"] - counted["accepted_tokens"] - counted["requests"]
    if (counted["verify_steps"] < VERIFYING_SHARE * can_verify).any():
        return "drafting_varies"
    drafted = (points["drafted_tokens"] / points["verify_steps"]).astype(float).dropna()
    if len(drafted) and drafted.max() - drafted.min() > DRAFT_SPREAD * drafted.max():
        return "drafting_varies"
    return None
