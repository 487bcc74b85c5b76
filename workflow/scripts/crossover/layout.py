"""Where each result belongs: paths that carry the digests of all that a result depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crossover.campaign import Campaign, Session

RESULTS = "results"
POINT_FILES = {
    "point": "point.json",  # written last: where it is, the point is whole
    "requests": "requests.parquet",
    "chunks": "chunks.parquet",
}

SESSION_TEMPLATE = "{variant}/{server}/trial~{trial}"
POINT_TEMPLATE = SESSION_TEMPLATE + "/{workload}/{point}/concurrency~{concurrency}"
"""Below results/<campaign>/, with the wildcards of the rules; `server` and `point` are digests."""


@dataclass(frozen=True)
class PlannedPoint:
    """One point of a campaign and the folder of its files."""

    session: Session
    workload: str
    concurrency: int
    folder: Path

    @property
    def files(self) -> list[str]:
        """All files of the point."""
        return [str(self.folder / name) for name in POINT_FILES.values()]

    @property
    def file(self) -> str:
        """The file that is written last."""
        return str(self.folder / POINT_FILES["point"])

    @property
    def is_done(self) -> bool:
        """Whether it was measured."""
        return Path(self.file).exists()


def session_folder(campaign: Campaign, session: Session) -> Path:
    """Folder of a session's files and points."""
    server = campaign.server_digests[session.variant]
    name = SESSION_TEMPLATE.format(variant=session.variant, server=server, trial=session.trial)
    return Path(RESULTS) / campaign.name / name


def points_of(campaign: Campaign, session: Session) -> list[PlannedPoint]:
    """The points of one session in the order in which they are measured."""
    folder = session_folder(campaign, session)
    return [
        PlannedPoint(
            session,
            workload,
            concurrency,
            folder / workload / campaign.point_digests[workload] / f"concurrency~{concurrency}",
        )
        for workload, concurrency in campaign.points(session.trial)
    ]


def points(campaign: Campaign) -> Iterator[PlannedPoint]:
    """All points of a campaign in the order in which they are measured."""
    for session in campaign.sessions:
        yield from points_of(campaign, session)


def make_point_folders(campaign: Campaign) -> list[str]:
    """Make the folders of all points, and return them with the folders that hold them.

    As inputs of the summary they make a deleted file due: deleting it changes its folder's
    mtime, whereas Snakemake itself looks for missing files among its targets only.
    """
    folders = {point.folder for point in points(campaign)}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    return sorted(str(f) for f in folders | {folder.parent for folder in folders})
