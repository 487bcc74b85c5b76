# One life of one server: start_server, check_health, measure_point (a job a point), stop_server.
#
# A point that is due makes `stop_server` due; its handle is a temp file that exists only while
# the server lives, which pulls in `start_server` and `check_health`; the due point waits for
# health.json. Points that are up to date stay so: health.json is `ancient` to them.
# Measuring rules are shell rules with untracked parameters, since a result's path already says
# all that it depends on.


rule start_server:
    input:
        model=model_file,
        plan=plan_of_session,
    output:
        handle=temp(HANDLE),
    log:
        f"{LOGS}/{layout.SESSION_TEMPLATE}/start_server.log",
    priority: start_priority
    group:
        session_group
    conda:
        "../envs/workflow.yaml"
    resources:
        **session_resources("start_server"),
    params:
        run=flow.Script("start_server.py"),
        spec=server_spec,
        server_log=server_log,
    message:
        "start {wildcards.variant}, trial {wildcards.trial}"
    shell:
        "{params.run} {params.spec:q} --handle {output.handle}"
        " --server-log {params.server_log:q} 3>&2 > {log} 2>&1"


rule check_health:
    input:
        handle=HANDLE,
    output:
        health=f"{SESSION}/health.json",
    log:
        f"{LOGS}/{layout.SESSION_TEMPLATE}/check_health.log",
    priority: ending_priority
    group:
        session_group
    conda:
        "../envs/workflow.yaml"
    resources:
        **session_resources("check_health"),
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
        **{name: f"{POINT}/{file}" for name, file in layout.POINT_FILES.items()},
    log:
        f"{LOGS}/{layout.POINT_TEMPLATE}.log",
    priority: measuring_priority
    group:
        session_group
    conda:
        "../envs/workflow.yaml"
    resources:
        **session_resources("measure_point"),
    params:
        run=flow.Script("measure_point.py"),
        spec=point_spec,
    message:
        "measure {wildcards.variant}, trial {wildcards.trial}, {wildcards.workload}, {wildcards.axis} {wildcards.level}"
    shell:
        "{params.run} {params.spec:q} {input.health} {output.point} 3>&2 > {log} 2>&1"


rule stop_server:
    input:
        handle=HANDLE,
        # also where no point is due: the stop must not overtake the health check
        health=ancient(f"{SESSION}/health.json"),
        points=points_before_stop,
        # so that these points are looked at anew when a forced run plans the round anew
        plan=plan_of_session,
    output:
        f"{SESSION}/stopped.json",
    log:
        f"{LOGS}/{layout.SESSION_TEMPLATE}/stop_server.log",
    priority: ending_priority
    group:
        session_group
    conda:
        "../envs/workflow.yaml"
    resources:
        **session_resources("stop_server"),
    params:
        run=flow.Script("stop_server.py"),
    message:
        "stop {wildcards.variant}, trial {wildcards.trial}"
    shell:
        "{params.run} {input.handle} {output} > {log} 2>&1"


onstart:
    claim_folder()
    with plain_errors():
        flow.check_no_session_lives(glob.glob(HANDLES))
        flow.check_can_run(CAMPAIGN, missing_model(), here=workflow.local_exec)
    standing.write(whole_points(None), f"{RESULTS}/standing.json")


onerror:
    with plain_errors():
        flow.stop_own_servers(glob.glob(HANDLES))
    for said in [*FAILED.lines(), early_ends.GO_ON]:
        print(f"crossover: {said}", file=sys.stderr)
