"""Which files are read, in which format, and what is left out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossover.errors import ResultFileError
from crossover.imports.aiperf import Aiperf
from crossover.imports.document import Document
from crossover.imports.format import Format
from crossover.imports.guidellm import Guidellm
from crossover.imports.plain_csv import PlainCsv
from crossover.imports.run import Run
from crossover.imports.sglang_bench import SglangBench
from crossover.imports.vllm_bench import VllmBench
from crossover.imports.vllm_sweep import VllmSweep

FORMATS: tuple[Format, ...] = (
    VllmSweep(),
    VllmBench(),
    SglangBench(),
    Guidellm(),
    Aiperf(),
    PlainCsv(),
)
"""The first that a file matches reads it."""

ENDINGS = {".json", ".jsonl", ".csv"}


def result_files(path: str) -> list[str]:
    """The files that an import reads: the one, or all of a folder that may hold results.

    Raises:
        ResultFileError: there is nothing at `path`, or no such file in the folder.
    """
    place = Path(path)
    if place.is_file():
        return [path]
    if not place.is_dir():
        raise ResultFileError(f"imports: there is no {path!r}; give a file or a folder")
    found = sorted(
        str(file)
        for file in place.rglob("*")
        if file.suffix.lower() in ENDINGS and file.is_file() and not _is_hidden(file, place)
    )
    if not found:
        raise ResultFileError(
            f"imports: nothing in {path!r} ends with {', '.join(sorted(ENDINGS))}"
        )
    return found


def _is_hidden(file: Path, below: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(below).parts)


@dataclass(frozen=True)
class Reading:
    """What was read: the runs that are levels, and what was left out, with the reasons."""

    runs: list[Run]
    not_levels: dict[str, str]
    """runs by their source"""
    unread: dict[str, str]
    """files in no known format"""

    @property
    def remarks(self) -> list[str]:
        """What was left out, as warnings of all points."""
        found = [f"left_out: {source}: {why}" for source, why in self.not_levels.items()]
        if self.unread:
            first, *others = self.unread
            more = f" and {len(others)} more" if others else ""
            found.append(f"files_left_out: {first}{more}")
        return found

    def __str__(self) -> str:
        left_out = {**self.not_levels, **self.unread}
        return "\n".join(f"left out: {source}: {why}" for source, why in left_out.items())


def read_files(files: Sequence[str]) -> Reading:
    """The runs of all files, each once, and what was left out.

    A copy of a run is no repeat of it: runs with equal figures count once. A sweep keeps each of
    its runs up to three times, alone and in its summaries, which is not remarked on.

    Raises:
        ResultFileError: no file holds a level; says why of each.
    """
    runs, unread = _all_runs(files)
    reading = Reading([], {}, unread)
    seen: dict[Hashable, str] = {}
    for run in runs:
        if run.no_level:
            reading.not_levels[run.source] = run.no_level
        elif (same := seen.setdefault(_identity(run), run.source)) == run.source:
            reading.runs.append(run)
        elif run.tool != VllmSweep.name:
            reading.not_levels[run.source] = f"the same run as in {same}"
    if not reading.runs:
        raise ResultFileError(f"no level to import\n{reading}")
    return reading


def _all_runs(files: Sequence[str]) -> tuple[list[Run], dict[str, str]]:
    """The runs of all files, and the files in no known format."""
    runs: list[Run] = []
    unread = {}
    for file in files:
        document = Document.load(Path(file))
        reasons = {form.name: form.mismatch(document) for form in FORMATS}
        form = next((form for form in FORMATS if reasons[form.name] is None), None)
        if form is None:
            unread[file] = _why(reasons)
        else:
            runs += form.read(document)
    return runs, unread


def _identity(run: Run) -> Hashable:
    """Equal for copies of one run. A sweep's table may name its variant otherwise than its folder;
    rounded figures of a table are equal by chance too.
    """
    if run.tool == PlainCsv.name:
        return run.source
    variant = None if run.tool == VllmSweep.name else run.variant
    return (
        run.tool,
        variant,
        run.concurrency,
        *sorted((k, str(v)) for k, v in run.figures.items()),
    )


def _why(reasons: dict[str, str]) -> str:
    """Why no format matched; formats that give the same reason are named together."""
    formats: dict[str, list[str]] = {}
    for name, why in reasons.items():
        formats.setdefault(why, []).append(name)
    tried = "; ".join(f"{', '.join(names)}: {why}" for why, names in formats.items())
    return f"in no format that can be imported ({tried})"
