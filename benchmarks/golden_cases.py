"""Judge the cases of golden files and print where the verdicts differ from the expected ones.

    python benchmarks/golden_cases.py FILE…

A case holds `rows` (C, config, repeat, tput, cv_within, err_rate), `options` and what is
`expected`, with tolerances. Ends with "N of M cases" that agree; exit status 1 if any does not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow" / "scripts"))

from crossover.campaign import Analysis
from crossover.stats.model import Settings
from crossover.verdict import Verdict, find_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

COLUMNS = {
    "C": "concurrency",
    "config": "variant",
    "repeat": "trial",
    "tput": "output_throughput_tokens_per_s",
    "cv_within": "cv_within",
    "err_rate": "error_share",
}

SETTINGS = {
    "margin": "margin",
    "alpha": "alpha",
    "ci": "confidence",
    "pairing": "pairing",
    "assumed_cv": "assumed_cv",
    "max_err": "max_error_share",
    "min_repeats": "min_launches",
    "coarse_gap": "coarse_gap",
}
"""Names of the cases' options, and ours."""


def judge(case: Mapping[str, Any]) -> Verdict:
    """Our verdict on a case."""
    options = dict(case["options"])
    variant, baseline = options.pop("spec", "spec"), options.pop("base", "baseline")
    settings = Settings(**{SETTINGS[name]: value for name, value in options.items()})
    rows = [{COLUMNS[key]: value for key, value in row.items()} for row in case["rows"]]
    points = pd.DataFrame(rows, columns=list(COLUMNS.values()), dtype=object)
    return find_verdict(points, Analysis(), variant=variant, baseline=baseline, settings=settings)


def differences(case: Mapping[str, Any]) -> list[str]:
    """What differs from the expected result, in words; empty if nothing does."""
    return list(_differences(judge(case), case["expected"]))


def _differences(got: Verdict, expected: Mapping[str, Any]) -> Iterator[str]:
    # The cases file what cannot be compared under "inconclusive".
    nothing = got.verdict == "not_comparable"
    pairs = {
        "verdict": "inconclusive" if nothing else got.verdict,
        "reasons": ["no_common_level"] if nothing else list(got.reasons),
        "dropped_levels": list(got.dropped_levels),
        "feasible_max": {
            "base": got.feasible_max["baseline"],
            "spec": got.feasible_max["variant"],
        },
        "labels": {str(level.concurrency): level.label for level in got.levels},
        "n_bad_rows": len(got.bad_rows),
        "censored": got.censored,
        "indicative_labels": got.indicative and got.indicative["labels"],
        "paired": None if got.tau is None else got.paired,
    }
    for name, value in pairs.items():
        if name in expected and value != expected[name]:
            yield f"{name}: {value}, expected {expected[name]}"

    tolerance = expected["tolerance"]
    for level in got.levels:
        wanted = [expected["ratio"][str(level.concurrency)]]
        name = f"ratio at {level.concurrency}"
        yield from _unequal(name, [level.ratio], wanted, tolerance["ratio_rel"])
    if len(got.crossings) != len(expected["crossings"]):
        yield f"{len(got.crossings)} crossings, expected {len(expected['crossings'])}"
        return
    for ours, theirs in zip(got.crossings, expected["crossings"], strict=True):
        for name in ("direction", "coarse"):
            if name in theirs and getattr(ours, name) != theirs[name]:
                yield f"{name}: {getattr(ours, name)}, expected {theirs[name]}"
        yield from _unequal("bracket", ours.bracket, theirs["bracket"], 0)
        yield from _unequal("C*", [ours.c_star], [theirs["C_star"]], tolerance["C_star_rel"])
        yield from _unequal("interval", ours.ci, theirs["ci"], tolerance["ci_rel"])
        yield from _unequal("hard bracket", ours.hard, theirs["hard"], tolerance["hard_rel"])


def _unequal(
    name: str, got: Iterable[float], expected: Iterable[float], tolerance: float
) -> Iterator[str]:
    for ours, theirs in zip(got, expected, strict=True):
        if abs(ours - theirs) > tolerance * abs(theirs):
            yield f"{name}: {ours:.6g}, expected {theirs:.6g} within {tolerance:.1%}"


def main(paths: Iterable[str]) -> int:
    """Judge all cases of the files; 0 if all agree."""
    agreeing = total = 0
    for path in paths:
        for case in json.loads(Path(path).read_text())["cases"]:
            found = differences(case)
            total += 1
            agreeing += not found
            print(f"{case['id']}: {'agrees' if not found else ''}{'; '.join(found)}")
    print(f"{agreeing} of {total} cases")
    return 0 if agreeing == total else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
