# From tables and verdicts to the page that people read, its short form, and its table.


report: "../workflow/report/campaign.rst"


rule render_report:
    input:
        points=f"{RESULTS}/points.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
        requests=f"{RESULTS}/requests.parquet",
        verdicts=f"{RESULTS}/verdicts.json",
        policy=f"{RESULTS}/policy.json",
        code=lambda wildcards: code_files("render_report.py"),
    output:
        page=report(
            "reports/crossover.html",
            caption="../workflow/report/page.rst",
            category="Report",
            labels={"shows": "the whole report"},
        ),
        summary="reports/summary.md",
        picture=report(
            "reports/summary.png",
            caption="../workflow/report/picture.rst",
            category="Figures",
            labels={"shows": "speed-up at every level"},
        ),
        levels=report(
            "reports/levels.csv",
            caption="../workflow/report/levels.rst",
            category="Tables",
            labels={"shows": "every comparison at every level"},
        ),
    log:
        f"{LOGS}/render_report.log",
    localrule: True
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
