"""How long a job of a session may take at most, for whoever schedules it."""

from __future__ import annotations

import math

from crossover.campaign import Campaign, Variant

JOB_S = 60.0
"""Start of the interpreter, a slow file system, and whatever else no setting limits."""


def minutes(campaign: Campaign, variant: Variant, rule: str) -> int | str:
    """Whole minutes after which a job has certainly gone wrong.

    A session's jobs run one after another, so that their limits add up to the session's. Where
    the campaign gives that (`resources.runtime`, in Snakemake's own notation), it stands at the
    session's first job.
    """
    if (of_session := variant.resources.get("runtime")) is not None:
        return of_session if rule == "start_server" else 0
    load = campaign.load
    longest_s = {
        "start_server": variant.stop_grace_s,  # the end of what another session left
        "check_health": variant.startup_timeout_s,
        "measure_point": load.ramp_s
        + load.warmup.max_s
        + load.steady.max_s
        + load.request_timeout_s,
        "stop_server": 2 * variant.stop_grace_s,  # the server's end, then its memory's
    }
    return math.ceil((longest_s[rule] + JOB_S) / 60)
