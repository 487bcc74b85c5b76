"""Which variant to run at which load: the strip, the thresholds, the gain, the engine's own terms."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossover.report.wording import (
    Row,
    counted,
    level_number,
    level_text,
    percent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from crossover.axis import Axis
    from crossover.campaign import Campaign


@dataclass(frozen=True)
class Recommendation:
    """The policy of one workload. Of `rows`: variant, range, supported, and weight, its width on a
    log scale.
    """

    rows: list[dict[str, Any]]
    statements: list[str]
    advice: str
    own_terms: tuple[str, str] | None
    """(what it is, text to copy)"""


def recommend(policy: Row, workload: str, campaign: Campaign, axis: Axis) -> Recommendation | None:
    """What policy.json says of a workload; None: nothing."""
    found = next((w for w in policy["workloads"] if w["workload"] == workload), None)
    if not found or not found["runs"]:
        return None
    rows = []
    for run in found["runs"]:
        first, last = run[f"from_{axis.name}"], run[f"to_{axis.name}"]
        span = level_text(first) if first == last else f"{level_text(first)} to {level_text(last)}"
        rows.append(
            {
                "variant": run["variant"],
                "range": span,
                "supported": run["supported"],
                "weight": round(1.0 + math.log2(last / first), 3),
            }
        )
    chosen = {row["variant"] for row in rows}
    switches = [s for s in found["switching"] if s["variant"] in chosen]
    return Recommendation(
        rows=rows,
        statements=[
            *(threshold(s, axis) for s in switches),
            *_envelope(found, axis),
            *_gain(found, campaign, axis),
        ],
        advice=policy["advice"] if switches else "",
        own_terms=_own_terms(found),
    )


def threshold(switch: Row, axis: Axis) -> str:
    """When to switch a variant on and off, with the gap that keeps it from flapping."""
    unit = axis.unit or "requests in flight"
    if switch["direction"] == "down":
        text = (
            f"{switch['variant']}: on at {switch['on_at_most']} {unit} and below, "
            f"off at {switch['off_at_least']} and above"
        )
    else:
        text = (
            f"{switch['variant']}: on at {switch['on_at_least']} {unit} and above, "
            f"off at {switch['off_at_most']} and below"
        )
    if switch["coarse"]:
        text += " (provisional: the tested levels lie far apart here)"
    if switch["regret_max"] is not None:
        text += (
            f"; a threshold anywhere within the interval loses less than "
            f"{math.ceil(1000 * switch['regret_max'] + 1e-9) / 10:.1f} % of what the best choice gives"
        )
    return text + "."


def _envelope(found: Row, axis: Axis) -> Iterable[str]:
    envelope = found["envelope"]
    variants = {s["variant"] for s in found["switching"]}
    if envelope is None or len(variants) < 2:
        return
    for crossing in envelope["crossings"]:
        if crossing["ci"] is not None:
            lo, hi = map(level_number, crossing["ci"])
            side = "up to" if crossing["direction"] == "down" else "from"
            yield (
                f"The best of the variants beats the baseline {side} "
                f"{axis.at(round(crossing['c_star'], 1))} (interval {lo} to {hi})."
            )


def _gain(found: Row, campaign: Campaign, axis: Axis) -> Iterable[str]:
    gain = found["expected_gain"]
    shares = campaign.analysis.load_shares
    if gain is None or shares is None:
        return
    total = sum(shares.values())
    mix = ", ".join(
        f"{100 * s / total:.0f} % at {level_text(c)}" for c, s in sorted(shares.items())
    )
    text = f"For a load of {mix} (share of time at each {axis.words}), switching "
    if gain["gain"] is None:
        text += f"would gain {percent(gain['plug_in'])} by the same data that chose it"
    else:
        text += (
            f"gains {percent(gain['gain'])} ± {100 * gain['se']:.1f} % (standard error, "
            f"{counted(gain['trials'], 'trial')}, each scored by what the others choose)"
        )
    yield f"{text} over always running {gain['best_static']}."


def _own_terms(found: Row) -> tuple[str, str] | None:
    terms = found["own_terms"]
    if terms is None:
        return None
    return (
        f"The same as {terms['engine']} takes it (server settings)",
        json.dumps(terms["settings"], ensure_ascii=False),
    )
