# Crossover: at which concurrency does a feature of an LLM server stop paying?
#
# results/<campaign>/<variant>/<server digest>/trial~<n>/            one session after another
#     health.json, stopped.json                                      check_health, stop_server
#     sessions/<session id>.jsonl, samples/<session id>.jsonl        what happened, append-only
#     <workload>/<point digest>/concurrency~<n>/                     measure_point
#         point.json, requests.parquet, chunks.parquet
# results/<campaign>/{points,requests,sessions}.parquet              summarise_points
# results/<campaign>/{verdicts,policy}.json                          find_crossover
# reports/crossover.html                                             render_report
# logs/                                                              mirrors results/
from snakemake.utils import min_version

min_version("9.27")


# A campaign file stands alone: --configfile replaces the default one instead of merging with it.
if not workflow.overwrite_configfiles:

    configfile: "config/config.yaml"


include: "rules/common.smk"
include: "rules/model.smk"
include: "rules/session.smk"
include: "rules/analysis.smk"
include: "rules/report.smk"


localrules:
    all,
    make_model,
    summarise_points,
    find_crossover,
    render_report,


rule all:
    default_target: True
    input:
        TABLES,
        VERDICTS,
        "reports/crossover.html",
