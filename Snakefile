# Crossover: at which concurrency does a feature of an LLM server stop paying?
#
# results/<campaign>/<variant>/<server digest>/trial~<n>/            one session after another
#     health.json, stopped.json                                      check_health, stop_server
#     sessions/<session id>.jsonl, samples/<session id>.jsonl        what happened, append-only
#     <workload>/<point digest>/concurrency~<n>/                     measure_point
#                                      or request_rate~<r>/
#         point.json, requests.parquet, chunks.parquet
# results/<campaign>/{points,requests,sessions}.parquet              summarise_points, or
#                                                                    import_points
# results/<campaign>/refine/<digest>/round~<n>.json                  refine_levels, if asked for
# results/<campaign>/{verdicts,policy}.json                          find_crossover
# reports/crossover.html, summary.{md,png}, levels.csv                render_report
# reports/compare.html                                               compare_campaigns
# logs/                                                              mirrors results/
from snakemake.utils import min_version

min_version("9.27")


# A campaign file stands alone: --configfile replaces the default one instead of merging with it.
if not workflow.overwrite_configfiles:

    configfile: "config/config.yaml"


include: "rules/package.smk"
include: "rules/compare.smk"


if "compare" in config:
    WANTED = "reports/compare.html"
else:

    include: "rules/common.smk"

    if CAMPAIGN.imports:

        include: "rules/imports.smk"

    else:

        include: "rules/summary.smk"

        if not CAMPAIGN.only_measured:

            include: "rules/model.smk"
            include: "rules/session.smk"

            if CAMPAIGN.refine.rounds:

                include: "rules/refine.smk"
    include: "rules/analysis.smk"
    include: "rules/report.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        WANTED,
