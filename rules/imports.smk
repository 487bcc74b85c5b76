# From result files of other tools to tables: nothing is started, nothing is measured.


with plain_errors():
    IMPORTED_FILES = result_files(CAMPAIGN.imports)


def imported_files(wildcards):
    claim_folder()
    return IMPORTED_FILES


rule import_points:
    input:
        files=imported_files,
        code=lambda wildcards: code_files("import_points.py"),
    output:
        points=f"{RESULTS}/points.parquet",
        requests=f"{RESULTS}/requests.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
    log:
        f"{LOGS}/import_points.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        campaign=CAMPAIGN.name,
        imports=flow.Untracked(CAMPAIGN.imports),
        baseline=CAMPAIGN.baseline,
        # tracked: the set of inputs is no trigger, and a file that is gone changes the tables
        files=IMPORTED_FILES,
    message:
        "import {params.imports}"
    script:
        "../workflow/scripts/import_points.py"
