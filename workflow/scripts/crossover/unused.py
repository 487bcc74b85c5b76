"""Results on disk that no campaign file names any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from crossover import layout
from crossover.campaign import Campaign


def unused(campaigns: Iterable[Campaign]) -> Iterator[Path]:
    """Folders below results/ of these campaigns that none of them asks for, outermost first.

    Results of campaigns that are not given are left alone.
    """
    used: set[Path] = set()
    roots = set()
    for campaign in campaigns:
        roots.add(Path(layout.RESULTS) / campaign.name)
        plans = layout.refine_folder(campaign)
        used |= {plans, plans.parent}
        for point in layout.points(campaign):
            used |= {point.folder, *point.folder.parents}
            session = layout.session_folder(campaign, point.session)
            used |= {session / "sessions", session / "samples"}
    for root in sorted(roots):
        yield from _outermost(root, used)


def _outermost(folder: Path, used: set[Path]) -> Iterator[Path]:
    for inner in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not inner.is_dir():
            continue
        if inner not in used:
            # a dry run of another version of the file makes folders and nothing in them
            if any(path.is_file() for path in inner.rglob("*")):
                yield inner
        else:
            yield from _outermost(inner, used)
