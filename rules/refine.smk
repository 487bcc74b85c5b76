# From the points so far to the points of one more round; only where a campaign asks for rounds.


checkpoint refine_levels:
    input:
        before_round,
    output:
        # not removed before the job: a forced run reads it for the jobs of its round meanwhile
        plan=update(ROUND),
    log:
        f"{LOGS}/refine/round~{{round}}.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        campaign=flow.Untracked(CAMPAIGN),
        standing=f"{RESULTS}/standing.json",
    message:
        "plan round {wildcards.round} of refinement"
    script:
        "../workflow/scripts/refine_levels.py"
