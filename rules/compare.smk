# Campaigns side by side, from results that exist: nothing is started, nothing is measured.


rule compare_campaigns:
    input:
        compared_files,
        code=lambda wildcards: code_files("compare_campaigns.py"),
    output:
        report(
            "reports/compare.html",
            caption="../workflow/report/compare.rst",
            category="Report",
            labels={"shows": "campaigns side by side"},
        ),
    log:
        "logs/compare_campaigns.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        folders=compared_folders,
    message:
        "set campaigns side by side"
    script:
        "../workflow/scripts/compare_campaigns.py"
