"""Where each result belongs: paths that carry the digests of all that a result depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crossover import rounds
from crossover.campaign import Campaign, Session

RESULTS = "results"
POINT_FILES = {
    "point": "point.json",  # written last: where it is, the point is whole
    "requests": "requests.parquet",
    "chunks": "chunks.parquet",
}

SESSION_TEMPLATE = "{variant}/{server}/trial~{trial}"
POINT_TEMPLATE = SESSION_TEMPLATE + "/{workload}/{point}/{axis}~{level}"
"""Below results/<campaign>/, with the wildcards of the rules; `server` and `point` are digests,
`axis` is concurrency or request_rate."""


@dataclass(frozen=True)
class PlannedPoint:
    """One point of a campaign and the folder of its files."""

    session: Session
    workload: str
    level: float
    long_window: bool
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


def refine_folder(campaign: Campaign) -> Path:
    """Folder of the plans of the rounds of refinement."""
    return Path(RESULTS) / campaign.name / "refine" / campaign.refine_digest


def rounds_of(campaign: Campaign) -> list[rounds.Round]:
    """The rounds that are planned by now, in turn."""
    if (
        not campaign.refine.rounds
    ):  # also where the servers are not ours, and nothing is known of them
        return []
    return list(rounds.planned(refine_folder(campaign), campaign.refine.rounds))


def may_refine(campaign: Campaign) -> bool:
    """Whether a further round may be planned."""
    found = rounds_of(campaign)
    rounds_left = len(found) < campaign.refine.rounds and not campaign.only_measured
    return rounds_left and not (found and found[-1].stopped)


def sessions(campaign: Campaign) -> list[Session]:
    """All sessions in their order: the campaign's own, then those of the rounds planned by now."""
    found = list(campaign.sessions)
    for planned in rounds_of(campaign):
        variants = {point.variant for point in planned.points}
        order = [name for name in campaign.order(planned.trial) if name in variants]
        found += [Session(name, planned.trial, len(found) + i) for i, name in enumerate(order)]
    return found


def points_of(campaign: Campaign, session: Session) -> list[PlannedPoint]:
    """The points of one session in the order in which they are measured."""
    windows = dict.fromkeys(campaign.grid, False)
    if session.trial >= rounds.FIRST_TRIAL:
        number = session.trial - rounds.FIRST_TRIAL + 1
        planned = rounds.read(rounds.file_of(refine_folder(campaign), number))
        windows = {
            (p.workload, p.concurrency): p.long_window
            for p in planned.points
            if p.variant == session.variant
        }
    folder = session_folder(campaign, session)
    digests = {False: campaign.point_digests, True: campaign.long_point_digests}
    return [
        PlannedPoint(
            session,
            workload,
            level,
            long_window := windows[workload, level],
            folder
            / workload
            / digests[long_window][workload]
            / f"{campaign.load.axis.name}~{level}",
        )
        for workload, level in campaign.in_drawn_order(session.trial, windows)
    ]


def points(campaign: Campaign) -> Iterator[PlannedPoint]:
    """All points that are planned by now, in the order in which they are measured.

    With `only: measured` those that are.
    """
    for session in sessions(campaign):
        for point in points_of(campaign, session):
            if point.is_done or not campaign.only_measured:
                yield point


def point_folders(campaign: Campaign, *, make: bool) -> list[str]:
    """The folders of all points and those that hold them, made first or, if not, those there are.

    As inputs of the summary they make a deleted file due: deleting it changes its folder's
    mtime, whereas Snakemake itself looks for missing files among its targets only.
    """
    folders = {point.folder for point in points(campaign)}
    if make:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
    folders |= {folder.parent for folder in folders}
    return sorted(str(folder) for folder in folders if folder.exists())
