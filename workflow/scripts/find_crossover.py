"""Judge every comparison of the campaign; write the verdicts and the policy."""

import pandas as pd

from crossover.records import write_json
from crossover.verdicts import judge
from crossover.workflow import logged_to

with logged_to(snakemake.log[0]):
    verdicts, policy = judge(
        pd.read_parquet(snakemake.input.points),
        pd.read_parquet(snakemake.input.sessions),
        snakemake.params.campaign.value,
    )
    write_json(verdicts, snakemake.output.verdicts)
    write_json(policy, snakemake.output.policy)
