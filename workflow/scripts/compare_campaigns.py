"""Set the results of several campaigns side by side on one page."""

from datetime import UTC, datetime

from crossover.compare.page import render
from crossover.compare.results import read
from crossover.files import write_text
from crossover.job_log import logged_to

with logged_to(snakemake.log[0]):
    page = render(
        read(snakemake.params.folders),
        generated_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    write_text(page, snakemake.output[0])
