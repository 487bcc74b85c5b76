"""Render the report: one HTML file that needs no network."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from crossover import provenance
from crossover.records import write_text
from crossover.report.page import render
from crossover.workflow import logged_to

with logged_to(snakemake.log[0]):
    campaign = snakemake.params.campaign.value
    points = pq.read_table(snakemake.input.points)
    sessions = pq.read_table(snakemake.input.sessions)
    page = render(
        points,
        sessions,
        json.loads(Path(snakemake.input.verdicts).read_text()),
        json.loads(Path(snakemake.input.policy).read_text()),
        campaign=campaign,
        provenance=provenance.of_campaign(campaign, sessions, snakemake.params.source.value),
        generated_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    write_text(page, snakemake.output[0])
