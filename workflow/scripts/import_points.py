"""Put result files of other tools into the tables of a campaign."""

from crossover.imports.tables import import_files
from crossover.job_log import logged_to

with logged_to(snakemake.log[0]):
    import_files(
        snakemake.input.files,
        campaign=snakemake.params.campaign,
        baseline=snakemake.params.baseline,
        imports=snakemake.params.imports.value,
        points=snakemake.output.points,
        requests=snakemake.output.requests,
        sessions=snakemake.output.sessions,
    )
