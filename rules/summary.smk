# From points to tables.


rule summarise_points:
    input:
        point_files,
        points=whole_points,
        stops=all_stops,
        rounds=round_plans,
        folders=point_folders,
        code=lambda wildcards: code_files("summarise_points.py"),
    output:
        points=f"{RESULTS}/points.parquet",
        requests=f"{RESULTS}/requests.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
    log:
        f"{LOGS}/summarise_points.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        # tracked: a level that is dropped changes the tables
        points=planned_by_now,
    message:
        "put all points, requests and sessions into tables"
    script:
        "../workflow/scripts/summarise_points.py"
