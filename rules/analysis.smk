# From tables to verdicts.


rule find_crossover:
    input:
        points=f"{RESULTS}/points.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
        requests=f"{RESULTS}/requests.parquet",
        rounds=round_plans,
        code=[
            *modules(
                "verdict*.py",
                "policy*.py",
                "refine.py",
                "rounds.py",
                "goodput.py",
                "noise_floor.py",
                "blocks.py",
                "reasons.py",
                "stats/*.py",
                "imports/found.py",
                "imports/names.py",
                "axis.py",
                "parity.py",
                "arm_settings.py",
                "agreement.py",
                "drafting.py",
                "step_cost.py",
                "what_if.py",
                "why_sentence.py",
                "engines/*.py",
            ),
            "workflow/scripts/find_crossover.py",
        ],
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
