# One life of one server: start_server, check_health, measure_point (a job a point), stop_server.
#
# A point that is due makes `stop_server` due; its handle is a temp file that exists only while
# the server lives, which pulls in `start_server` and `check_health`; the due point waits for
# health.json. Points that are up to date stay so: health.json is `ancient` to them.
# Measuring rules are shell rules with untracked parameters, since a result's path already says
# all that it depends on.

RANKS = {(s.variant, str(s.trial)): s.rank for s in CAMPAIGN.sessions}


@functools.cache
def claim_folder():
    """Once a run, and not while the Snakefile is read: the executor is not known then."""
    if workflow.is_main_process:
        run_lock.claim(cluster=workflow.non_local_exec)


def session_wildcards():
    """Wildcards of every session of the campaign, in its order."""
    for session in CAMPAIGN.sessions:
        yield {
            "variant": session.variant,
            "server": CAMPAIGN.server_digests[session.variant],
            "trial": session.trial,
        }


def session_points(session):
    """Files of the points that the campaign asks of a session."""
    folders = [
        POINT.format(
            **session,
            workload=workload,
            point=CAMPAIGN.point_digests[workload],
            concurrency=concurrency,
        )
        for workload, concurrency in CAMPAIGN.points(int(session["trial"]))
    ]
    return [f"{folder}/{name}" for folder in folders for name in POINT_FILES]


def points_before_stop(wildcards):
    """What a stop waits for: the points asked for, and those that are there already, so that
    a level dropped from the config does not restart the server."""
    claim_folder()
    there = glob.glob(f"{SESSION}/*/*/concurrency~*/point.json".format(**wildcards))
    known = [p for p in there if p.split("/")[-4] in CAMPAIGN.workloads]
    return sorted({*session_points(wildcards), *known})


def start_priority(wildcards):
    """Sessions start in their order, and none before the running one has ended."""
    return len(RANKS) - RANKS[wildcards.variant, wildcards.trial]


def measuring_priority(wildcards):
    """Above every start; within a session the points in their drawn order."""
    points = CAMPAIGN.points(int(wildcards.trial))
    point = (wildcards.workload, int(wildcards.concurrency))
    place = points.index(point) if point in points else len(points)
    return 10_000 + len(points) - place


def health_of_point(wildcards):
    """Ancient: a server that was started anew for one level leaves the others alone.

    `ancient` does not keep a job from following a *missing* file that is made anew: where
    health.json was deleted, a point that exists gets an input that nothing makes.
    """
    health = f"{SESSION}/health.json".format(**wildcards)
    measured = f"{POINT}/point.json".format(**wildcards)
    if os.path.exists(measured) and not os.path.exists(health):
        return f"{measured}.measured-already"
    return ancient(health)


def model_file(wildcards):
    """The model's file, where the campaign names one."""
    path = CAMPAIGN.model.path
    return ancient(path) if path else []


def server_spec(wildcards):
    return flow.Untracked(
        flow.server_spec(CAMPAIGN, wildcards.variant, int(wildcards.trial))
    )


def point_spec(wildcards):
    return flow.Untracked(
        flow.point_spec(
            CAMPAIGN,
            wildcards.variant,
            int(wildcards.trial),
            wildcards.workload,
            int(wildcards.concurrency),
        )
    )


rule start_server:
    input:
        model=model_file,
    output:
        handle=temp(HANDLE),
    log:
        job=f"{SESSION_LOGS}/start_server.log",
        server=f"{SESSION_LOGS}/server.log",
    priority: start_priority
    conda:
        "../envs/workflow.yaml"
    resources:
        **device_claims(),
    params:
        run=flow.Script("start_server.py"),
        spec=server_spec,
    message:
        "start {wildcards.variant}, trial {wildcards.trial}"
    shell:
        "{params.run} {params.spec:q} --handle {output.handle}"
        " --server-log {log.server} > {log.job} 2>&1"


rule check_health:
    input:
        handle=HANDLE,
    output:
        health=f"{SESSION}/health.json",
    log:
        f"{SESSION_LOGS}/check_health.log",
    priority: 30_000
    conda:
        "../envs/workflow.yaml"
    resources:
        **device_claims(),
    params:
        run=flow.Script("check_health.py"),
        spec=server_spec,
    message:
        "wait until {wildcards.variant}, trial {wildcards.trial}, is ready"
    shell:
        "{params.run} {params.spec:q} {input.handle} {output.health} 3>&2 > {log} 2>&1"


rule measure_point:
    input:
        health=health_of_point,
    output:
        [f"{POINT}/{name}" for name in POINT_FILES],
    log:
        POINT_LOG,
    priority: measuring_priority
    conda:
        "../envs/workflow.yaml"
    resources:
        **device_claims(),
    params:
        run=flow.Script("measure_point.py"),
        spec=point_spec,
    message:
        "measure {wildcards.variant}, trial {wildcards.trial}, {wildcards.workload}, concurrency {wildcards.concurrency}"
    shell:
        "{params.run} {params.spec:q} {input.health} {output[0]} 3>&2 > {log} 2>&1"


rule stop_server:
    input:
        handle=HANDLE,
        # also where no point is due: the stop must not overtake the health check
        health=ancient(f"{SESSION}/health.json"),
        points=points_before_stop,
    output:
        f"{SESSION}/stopped.json",
    log:
        f"{SESSION_LOGS}/stop_server.log",
    priority: 30_000
    conda:
        "../envs/workflow.yaml"
    resources:
        **device_claims(),
    params:
        run=flow.Script("stop_server.py"),
    message:
        "stop {wildcards.variant}, trial {wildcards.trial}"
    shell:
        "{params.run} {input.handle} {output} > {log} 2>&1"


onstart:
    flow.let_sigterm_through()
    with plain_errors():
        flow.check_can_run(CAMPAIGN)
    standing.write(summarised_points(None), f"{RESULTS}/standing.json")


onerror:
    flow.stop_own_servers(glob.glob(re.sub(r"\{\w+\}", "*", HANDLE)))
