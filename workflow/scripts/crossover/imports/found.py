"""The campaign that imported files amount to: variants, workloads and levels as they were found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from crossover.campaign import NOT_STATED, Campaign, Load, Model, Speculation, Variant, Workload
from crossover.errors import CampaignError
from crossover.imports.names import choose_baseline

if TYPE_CHECKING:
    import pandas as pd


def completed(campaign: Campaign, points: pd.DataFrame, sessions: pd.DataFrame) -> Campaign:
    """The campaign itself, or, if it imports, with all that only its files say.

    Args:
        campaign: as its file says.
        points, sessions: rows of records.POINTS and records.SESSIONS.

    Raises:
        CampaignError: `analysis.compare` names a variant that the files do not have.
        ResultFileError: see `choose_baseline`.
    """
    if not campaign.imports:
        return campaign
    names = list(dict.fromkeys(points["variant"]))
    for name in {name for pair in campaign.analysis.compare for name in pair} - set(names):
        raise CampaignError(
            f"analysis.compare: {name!r} is no variant of these files; found: {', '.join(names)}"
        )
    model = Model(", ".join(sorted(set(sessions["model_name"].dropna()))) or NOT_STATED)
    return replace(
        campaign,
        baseline=choose_baseline(names, campaign.baseline, campaign.imports),
        model=model,
        variants={name: _variant(name, model, sessions) for name in names},
        workloads={
            name: Workload(name, prompts=None, prompts_sha256=None, max_tokens=None)
            for name in dict.fromkeys(points["workload"])
        },
        load=Load(
            concurrency=tuple(sorted(map(int, set(points["concurrency"])))),
            trials=int(points["trial"].max()),
        ),
    )


def _variant(name: str, model: Model, sessions: pd.DataFrame) -> Variant:
    mine = sessions[sessions["variant"] == name]

    def fact(column: str) -> Any:
        return next(iter(mine[column].dropna()), None)

    method, drafted = fact("speculation_method"), fact("drafted_tokens")
    return Variant(
        name=name,
        engine=fact("engine") or NOT_STATED,
        model=model,
        speculation=None
        if method is None
        else Speculation(method, None if drafted is None else int(drafted)),
    )
