"""Judge every comparison of the campaign; write the verdicts and the policy."""

import pandas as pd

from crossover.records import write_json
from crossover.verdict import find_verdicts
from crossover.policy import policy
from crossover.workflow import logged_to

with logged_to(snakemake.log[0]):
    campaign = snakemake.params.campaign.value
    points = pd.read_parquet(snakemake.input.points)
    sessions = pd.read_parquet(snakemake.input.sessions)
    verdicts = find_verdicts(points, sessions, campaign)
    write_json(verdicts, snakemake.output.verdicts)
    write_json(policy(points, verdicts, campaign.analysis), snakemake.output.policy)
