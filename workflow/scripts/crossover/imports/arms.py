"""What differs between the runs of a variant and those of the baseline, besides what is compared.

Versions and dates are judged by `blocks` and output lengths by `verdict`, from the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crossover.imports.run import Run

LENGTHS_ALIKE = 0.02
"""Relative difference of mean prompt lengths up to which two runs did the same work."""


def differences(baseline: Sequence[Run], variant: Sequence[Run]) -> list[str]:
    """Remarks on a variant, as `code: detail`; what only one arm's files say is no difference."""
    return [
        *_differ("tool_differs", baseline, variant, lambda run: run.tool),
        *_differ("model_name_differs", baseline, variant, lambda run: run.server.get("model_name")),
        *_settings(baseline, variant),
        *_prompt_lengths(baseline, variant),
    ]


def _differ(
    code: str, baseline: Sequence[Run], variant: Sequence[Run], fact: Callable[[Run], Any]
) -> list[str]:
    theirs, ours = _values(baseline, fact), _values(variant, fact)
    if not theirs or not ours or theirs == ours:
        return []
    return [f"{code}: {', '.join(ours)} instead of {', '.join(theirs)}"]


def _values(runs: Sequence[Run], fact: Callable[[Run], Any]) -> list[str]:
    return sorted({str(value) for run in runs if (value := fact(run)) is not None})


def _settings(baseline: Sequence[Run], variant: Sequence[Run]) -> list[str]:
    theirs, ours = (
        {
            key: sorted({str(run.settings[key]) for run in runs if key in run.settings})
            for run in runs
            for key in run.settings
        }
        for runs in (baseline, variant)
    )
    differing = [
        f"{key} {', '.join(ours[key])} instead of {', '.join(theirs[key])}"
        for key in theirs
        if key in ours and ours[key] != theirs[key]
    ]
    return [f"settings_differ: {'; '.join(differing)}"] if differing else []


def _prompt_lengths(baseline: Sequence[Run], variant: Sequence[Run]) -> list[str]:
    column = "prompt_tokens_mean"
    theirs = {run.concurrency: run.figures[column] for run in baseline if column in run.figures}
    apart = sorted(
        {
            run.concurrency
            for run in variant
            if column in run.figures
            and run.concurrency in theirs
            and not alike(run.figures[column], theirs[run.concurrency])
        }
    )
    if not apart:
        return []
    return [f"prompt_length_differs: at concurrency {', '.join(map(str, apart))}"]


def alike(a: float, b: float) -> bool:
    """Whether two mean lengths are the same work."""
    return abs(a - b) <= LENGTHS_ALIKE * max(a, b)
