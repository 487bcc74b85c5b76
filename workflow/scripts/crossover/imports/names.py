"""Which variant a file is of, and which variant is the baseline, where files do not say it.

The rules are in docs/imports.md.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from crossover.errors import ResultFileError

_BETWEEN = r"(?<![a-zA-Z0-9])"
_END = r"(?![a-zA-Z0-9])"
_ABOUT_THE_RUN = [
    re.compile(_BETWEEN + pattern + _END, re.IGNORECASE)
    for pattern in (
        r"\d{8}[-_T]?\d{4,6}",
        r"(?:c|cc|conc|concurrency|max[-_]?concurrency|streams|users|clients)[-_=~]?\d+",
        r"(?:inf|[\d.]+)[-_]?(?:qps|rps)",
        r"(?:run|trial|rep|repeat|seed)[-_=~]?\d+",
    )
]
_TRIAL = re.compile(_BETWEEN + r"(?:run|trial|rep|repeat)[-_=~]?(\d+)" + _END, re.IGNORECASE)
_SAYS_NOTHING = re.compile(
    r"(?:bench(?:mark)?s?|results?|output|summary|run|profile_export\w*|artifacts|json|"
    r"(?:sglang|vllm|openai|trt|lmdeploy|gserver)[a-z-]*_\d{4}_.*|.*qps.*\d{8}-\d{6})?",
    re.IGNORECASE,
)
"""Names that a tool gives by default, or that only say that a file holds results."""

_BASELINE = re.compile(
    r"(?:baseline|base|plain|vanilla|no[-_ ]?spec\w*|spec\w*[-_ ]?off|autoregressive)(?:[^a-z].*)?",
    re.IGNORECASE,
)


def variant_of(path: Path) -> str:
    """The variant that a file's name speaks of, or the folder's where the file's says nothing.

    Concurrency, rate, trial and date are no part of it: `eagle3_c8_run2.json` is of `eagle3`.
    """
    for name in (path.stem, *(folder.name for folder in path.absolute().parents)):
        said = "" if _SAYS_NOTHING.fullmatch(name) else _without_run(name)
        if not _SAYS_NOTHING.fullmatch(said):
            return said
    return "unnamed"


def _without_run(name: str) -> str:
    for pattern in _ABOUT_THE_RUN:
        name = pattern.sub("", name)
    return re.sub(r"[-_. ]*([-_. ])", r"\1", name).strip("-_.=~ ")


def trial_of(path: Path) -> int | None:
    """The trial that a file's name counts, `run=2` or `trial-2`; None: it counts none."""
    found = _TRIAL.search(path.stem)
    return int(found[1]) if found else None


def choose_baseline(variants: Iterable[str], wanted: str | None, imports: str) -> str:
    """The baseline: the wanted variant, else the only one or the one whose name says that it is.

    Raises:
        ResultFileError: the wanted one is not among them, or their names do not decide; lists the
            names and the command that chooses.
    """
    names = list(dict.fromkeys(variants))
    if wanted in names:
        return wanted
    named = [name for name in names if _BASELINE.fullmatch(name)]
    if wanted is None and (len(names) == 1 or len(named) == 1):
        return (named or names)[0]
    problem = (
        "the names do not say which variant is the baseline"
        if wanted is None
        else f"baseline: {wanted!r} is no variant of these files"
    )
    example = (named or names)[0]
    raise ResultFileError(
        f"{problem}; found: {', '.join(names)}. Name it, for example:\n"
        "  snakemake -c1 reports/crossover.html --configfile config/campaigns/imported.yaml "
        f"--config imports={shlex.quote(imports)} baseline={shlex.quote(example)}"
    )
