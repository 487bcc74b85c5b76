"""Render the report: one HTML file that needs no network, its short form, and its table."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from crossover import provenance
from crossover.files import replacing, write_text
from crossover.imports.found import completed
from crossover.job_log import logged_to
from crossover.report.levels_csv import as_csv
from crossover.report.markdown import summarise
from crossover.report.page import render

with logged_to(snakemake.log[0]):
    points = pq.read_table(snakemake.input.points)
    sessions = pq.read_table(snakemake.input.sessions)
    verdicts = json.loads(Path(snakemake.input.verdicts).read_text())
    policy = json.loads(Path(snakemake.input.policy).read_text())
    campaign = completed(snakemake.params.campaign.value, points.to_pandas(), sessions.to_pandas())
    results = (points, sessions, verdicts, policy)
    generated_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = render(
        *results,
        campaign=campaign,
        provenance=provenance.of_campaign(campaign, sessions, snakemake.params.source.value),
        requests=snakemake.input.requests,
        generated_at=generated_at,
    )
    summary, picture = summarise(*results, campaign=campaign, generated_at=generated_at)
    write_text(page, snakemake.output.page)
    write_text(summary, snakemake.output.summary)
    with replacing(snakemake.output.picture) as temporary:
        temporary.write_bytes(picture)
    write_text(as_csv(verdicts), snakemake.output.levels)
