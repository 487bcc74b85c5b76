"""Plan one round of refinement from all points before it."""

import tempfile

import pandas as pd

from crossover import layout, rounds, standing
from crossover.job_log import logged_to
from crossover.refine import plan_round
from crossover.summary import summarise
from crossover.verdicts import judge_primary

with logged_to(snakemake.log[0]), tempfile.TemporaryDirectory() as folder:
    campaign = snakemake.params.campaign.value
    number = int(snakemake.wildcards.round)
    earlier = [one for one in layout.rounds_of(campaign) if one.number < number]
    before = [p for p in layout.points(campaign) if p.session.trial < rounds.trial_of(number)]
    tables = {name: f"{folder}/{name}.parquet" for name in ("points", "requests", "sessions")}
    summarise([point.file for point in before], **tables)
    points, sessions = (pd.read_parquet(tables[name]) for name in ("points", "sessions"))
    verdicts = judge_primary(points, sessions, campaign, tables["requests"])
    plan = plan_round(number, verdicts, campaign, earlier)
    for step in plan.steps:
        print(
            f"{step.variant} against {step.baseline}, {step.workload}: {step.outcome}: {step.why}"
        )
    rounds.write(plan, snakemake.output.plan)
    standing.write([point.file for point in layout.points(campaign)], snakemake.params.standing)
