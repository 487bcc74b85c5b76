"""Whether two arms give the same greedy answers to the same prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossover.axis import AXES
from crossover.verdict_metrics import axis_of

if TYPE_CHECKING:
    import pandas as pd

PROMPT = ["trial", "request_id", "prompt_id"]
"""With the level, what tells one prompt from another: every request of a level has a first line of
its own.
"""

ANSWER = ["workload", "variant", *AXES, *PROMPT, "status", "text_digest"]
"""The columns of records.REQUESTS that are read."""


@dataclass(frozen=True)
class Agreement:
    """Answers of both arms to one prompt."""

    pairs: int
    identical: int
    share: float
    """identical / pairs"""


def greedy_agreement(requests: pd.DataFrame, variant: str, baseline: str) -> Agreement | None:
    """Compare the digests of complete answers.

    Args:
        requests: rows of records.REQUESTS of one workload whose temperature is 0.
        variant: one arm.
        baseline: the other.

    Returns:
        None if no prompt was answered by both with a digest.
    """
    prompt = [axis_of(requests).name, *PROMPT]
    answers = requests.loc[requests["status"] == "ok", [*prompt, "variant", "text_digest"]].dropna()
    ours, theirs = (
        answers[answers["variant"] == arm].set_index(prompt)["text_digest"]
        for arm in (variant, baseline)
    )
    both = ours.to_frame("ours").join(theirs.rename("theirs"), how="inner")
    if both.empty:
        return None
    identical = int((both["ours"] == both["theirs"]).sum())
    return Agreement(len(both), identical, identical / len(both))
