"""Judge every comparison of the campaign; write the verdicts and the policy."""

import pandas as pd

from crossover import layout
from crossover.files import write_json
from crossover.imports.found import completed
from crossover.job_log import logged_to
from crossover.verdicts import judge

with logged_to(snakemake.log[0]):
    points = pd.read_parquet(snakemake.input.points)
    sessions = pd.read_parquet(snakemake.input.sessions)
    campaign = completed(snakemake.params.campaign.value, points, sessions)
    rounds = layout.rounds_of(campaign)
    verdicts, policy = judge(points, sessions, campaign, snakemake.input.requests, rounds)
    write_json(verdicts, snakemake.output.verdicts)
    write_json(policy, snakemake.output.policy)
