"""Put the points, requests and sessions of a campaign into three tables."""

from crossover.summary import summarise
from crossover.workflow import logged_to

with logged_to(snakemake.log[0]):
    summarise(
        snakemake.input.points,
        points=snakemake.output.points,
        requests=snakemake.output.requests,
        sessions=snakemake.output.sessions,
    )
