"""The folders whose results are compared, and how they are told apart."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from crossover.errors import CampaignError

FILES = ("points.parquet", "sessions.parquet", "verdicts.json")


def folders_of(value: str | Sequence[str]) -> list[str]:
    """The folders that the config's `compare` names: a list, or a string as a shell reads it.

    Raises:
        CampaignError: fewer than two, one named twice, or one without results.
    """
    folders = shlex.split(value) if isinstance(value, str) else [str(folder) for folder in value]
    if len({Path(folder).resolve() for folder in folders}) < max(2, len(folders)):
        raise CampaignError(
            f"compare names {', '.join(folders) or 'no folder'}; name two or more different folders "
            "that hold the results of a campaign each, as in: "
            '--config compare="results/before results/after"'
        )
    for folder in folders:
        for name in FILES:
            if not (Path(folder) / name).is_file():
                raise CampaignError(
                    f"compare: there is no {Path(folder) / name}; name the folder in which a "
                    f"campaign's {', '.join(FILES)} are: results/NAME below the working directory "
                    "that measured it"
                )
    return folders


def files_in(folders: Sequence[str]) -> list[str]:
    """The files that are read, by absolute paths: they are taken as they are.

    By the relative path of this directory's own results Snakemake would first bring the campaign
    up to date.
    """
    return [str((Path(folder) / name).resolve()) for folder in folders for name in FILES]


def apart(folders: Sequence[str]) -> list[str]:
    """What tells the folders apart: their paths without what all of them begin and end with."""
    paths = [Path(folder).resolve().parts for folder in folders]
    for end in (0, -1):
        while min(map(len, paths)) > 1 and len({parts[end] for parts in paths}) == 1:
            paths = [parts[1:] if end == 0 else parts[:-1] for parts in paths]
    return ["/".join(parts) for parts in paths]
