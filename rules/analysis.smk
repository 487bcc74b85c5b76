# From tables to verdicts.


rule find_crossover:
    input:
        points=f"{RESULTS}/points.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
        requests=f"{RESULTS}/requests.parquet",
        rounds=round_plans,
        code=lambda wildcards: code_files("find_crossover.py"),
    output:
        verdicts=f"{RESULTS}/verdicts.json",
        policy=f"{RESULTS}/policy.json",
    log:
        f"{LOGS}/find_crossover.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        campaign=flow.Untracked(CAMPAIGN),
        settings=flow.analysis_settings(CAMPAIGN),
    message:
        "judge every comparison"
    script:
        "../workflow/scripts/find_crossover.py"
