# From points to tables to verdicts.


def all_points(wildcards):
    """All files of all points."""
    return [p for session in session_wildcards() for p in session_points(session)]


def summarised_points(wildcards):
    """The file of each point that says that it is whole, and where its others are."""
    return [p for p in all_points(wildcards) if p.endswith("/point.json")]


def all_stops(wildcards):
    return [
        f"{SESSION}/stopped.json".format(**session) for session in session_wildcards()
    ]


def point_folders():
    """The folders of all points. Deleting a file changes its folder's mtime, which makes the
    summary, and so the deleted file, due: Snakemake looks for missing files among targets only.
    """
    folders = {
        os.path.dirname(point)
        for session in session_wildcards()
        for point in session_points(session)
    }
    folders |= {os.path.dirname(folder) for folder in folders}
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
    return sorted(folders)


def modules(*names):
    """Modules whose edit makes a result due, as inputs."""
    return [f"workflow/scripts/crossover/{name}" for name in names]


rule summarise_points:
    input:
        all_points,
        points=summarised_points,
        stops=all_stops,
        folders=point_folders(),
        code=modules("summary.py"),
    output:
        points=f"{RESULTS}/points.parquet",
        requests=f"{RESULTS}/requests.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
    log:
        f"logs/{CAMPAIGN.name}/summarise_points.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "put all points, requests and sessions into tables"
    script:
        "../workflow/scripts/summarise_points.py"


rule find_crossover:
    input:
        points=f"{RESULTS}/points.parquet",
        sessions=f"{RESULTS}/sessions.parquet",
        code=modules(
            "verdicts.py",
            "verdict.py",
            "verdict_sentence.py",
            "policy.py",
            "blocks.py",
            "stats/model.py",
            "stats/curve.py",
        ),
    output:
        verdicts=f"{RESULTS}/verdicts.json",
        policy=f"{RESULTS}/policy.json",
    log:
        f"logs/{CAMPAIGN.name}/find_crossover.log",
    conda:
        "../envs/workflow.yaml"
    params:
        campaign=flow.Untracked(CAMPAIGN),
        settings=flow.analysis_settings(CAMPAIGN),
    message:
        "judge every comparison"
    script:
        "../workflow/scripts/find_crossover.py"
