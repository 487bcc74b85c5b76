"""The results of one campaign as they lie in its folder, wherever they were measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from crossover import records
from crossover.axis import CLOSED_LOOP, OPEN_LOOP, Axis
from crossover.compare.folders import apart
from crossover.errors import CampaignError
from crossover.report.levels import rows_of
from crossover.report.wording import Row

FORMAT = 1
"""Of verdicts.json."""

Comparison = tuple[str, str, str, str]
"""(variant, baseline, workload, metric)"""


@dataclass(frozen=True)
class Results:
    """What one folder holds; `points` and `sessions` are rows of the data contract."""

    label: str
    folder: str
    points: list[Row]
    sessions: list[Row]
    settings: Row
    verdicts: dict[Comparison, Row]

    @property
    def axis(self) -> Axis:
        """What the points' levels are levels of."""
        rated = any(p[OPEN_LOOP.name] is not None for p in self.points)
        return OPEN_LOOP if rated else CLOSED_LOOP

    @property
    def certainty(self) -> tuple[float, float]:
        """Confidence of the crossings' intervals, and of the bounds at the levels.

        They differ where a campaign was refined: it was looked at several times.
        """
        confidence = self.settings["confidence"]
        return confidence, 1 - self.settings.get("alpha", 1 - confidence)

    def points_of(self, **wanted: Any) -> list[Row]:
        """The valid points with these values."""
        return [p for p in self.points if p["valid"] and all(p[k] == v for k, v in wanted.items())]

    def sessions_of(self, variant: str) -> list[Row]:
        """The lives of the variant's servers."""
        return [s for s in self.sessions if s["variant"] == variant]


def read(folders: Sequence[str]) -> list[Results]:
    """The results in each folder, labelled by the campaigns' names if these tell them apart.

    Raises:
        CampaignError: verdicts.json was written by another version of this program.
    """
    documents = [_verdicts(Path(folder) / "verdicts.json") for folder in folders]
    names = [document["campaign"] for document in documents]
    labels = names if len(set(names)) == len(names) else apart(folders)
    return [
        Results(
            label=label,
            folder=folder,
            points=_rows(folder, "points.parquet", records.POINTS),
            sessions=_rows(folder, "sessions.parquet", records.SESSIONS),
            settings=document["settings"],
            verdicts={
                (v["variant"], v["baseline"], v["workload"], v["metric"]): v
                for v in document["verdicts"]
            },
        )
        for label, folder, document in zip(labels, folders, documents, strict=True)
    ]


def _verdicts(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    if document.get("format") != FORMAT or not all("axis" in v for v in document["verdicts"]):
        raise CampaignError(
            f"compare: {path} was written by another version of this program; judge the campaign "
            "anew where it was measured: snakemake -c1 --configfile ITS_FILE "
            "--forcerun find_crossover"
        )
    return document


def _rows(folder: str, name: str, columns: tuple[records.Column, ...]) -> list[Row]:
    return rows_of(pq.read_table(Path(folder) / name), columns)
