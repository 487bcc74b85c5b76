# From points to tables to verdicts.


rule summarise_points:
    input:
        point_files,
        points=whole_points,
        stops=all_stops,
        folders=layout.make_point_folders(CAMPAIGN),
        code=[
            *modules("summary.py", "records.py", "server/session.py"),
            "workflow/scripts/summarise_points.py",
        ],
    output:
        points=f"{RESULTS}/points.parquet",
        requests=f"{RESULTS}/requests.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
    log:
        f"{LOGS}/summarise_points.log",
    conda:
        "../envs/workflow.yaml"
    params:
        # tracked: a level that is dropped changes the tables
        points=whole_points(None),
    message:
        "put all points, requests and sessions into tables"
    script:
        "../workflow/scripts/summarise_points.py"


rule find_crossover:
    input:
        points=f"{RESULTS}/points.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
        code=[
            *modules(
                "verdict*.py", "policy.py", "blocks.py", "reasons.py", "stats/*.py"
            ),
            "workflow/scripts/find_crossover.py",
        ],
    output:
        verdicts=f"{RESULTS}/verdicts.json",
        policy=f"{RESULTS}/policy.json",
    log:
        f"{LOGS}/find_crossover.log",
    conda:
        "../envs/workflow.yaml"
    params:
        campaign=flow.Untracked(CAMPAIGN),
        settings=flow.analysis_settings(CAMPAIGN),
    message:
        "judge every comparison"
    script:
        "../workflow/scripts/find_crossover.py"
