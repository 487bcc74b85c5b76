"""Put the points, requests and sessions of a campaign into three tables."""

from crossover.job_log import logged_to
from crossover.summary import summarise

with logged_to(snakemake.log[0]):
    summarise(
        snakemake.input.points,
        points=snakemake.output.points,
        requests=snakemake.output.requests,
        sessions=snakemake.output.sessions,
    )
