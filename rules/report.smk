# From tables and verdicts to the page that people read.


rule render_report:
    input:
        points=f"{RESULTS}/points.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
        verdicts=f"{RESULTS}/verdicts.json",
        policy=f"{RESULTS}/policy.json",
        code=[
            *modules(
                "report/*.py",
                "report/templates/*",
                "reasons.py",
                "records.py",
                "provenance.py",
            ),
            "workflow/scripts/render_report.py",
        ],
    output:
        "reports/crossover.html",
    log:
        f"{LOGS}/render_report.log",
    conda:
        "../envs/workflow.yaml"
    params:
        campaign=flow.Untracked(CAMPAIGN),
        settings=flow.report_settings(CAMPAIGN),
        source=flow.Untracked(flow.config_source(workflow.configfiles)),
    message:
        "render the report"
    script:
        "../workflow/scripts/render_report.py"
