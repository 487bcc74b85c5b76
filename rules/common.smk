# The campaign, read once, and what the rules need to know of it.

import functools
import glob
import os
import re
import sys

SCRIPTS = os.path.join(str(workflow.basedir), "workflow", "scripts")
if SCRIPTS not in sys.path:
    sys.path.insert(0, SCRIPTS)

from crossover import layout, run_lock, standing
from crossover import workflow as flow
from crossover.campaign import load_campaign
from crossover.errors import plain_errors

# the models that the rule make_model can make
MADE_MODELS = r"models/smollm2-135m-instruct-(bf16|q8_0)\.gguf"

with plain_errors():
    CAMPAIGN = load_campaign(config, flow.config_source(workflow.configfiles))
    flow.check_model(CAMPAIGN, made_by_rule=MADE_MODELS)

RESULTS = f"{layout.RESULTS}/{CAMPAIGN.name}"
LOGS = f"logs/{CAMPAIGN.name}"
SESSION = f"{RESULTS}/{layout.SESSION_TEMPLATE}"
POINT = f"{RESULTS}/{layout.POINT_TEMPLATE}"
HANDLE = f"{SESSION}/handle.json"
HANDLES = re.sub(r"{\w+}", "*", HANDLE)
TABLES = [f"{RESULTS}/{table}.parquet" for table in ("points", "requests", "sessions")]
VERDICTS = [f"{RESULTS}/verdicts.json", f"{RESULTS}/policy.json"]
SESSIONS = {(s.variant, str(s.trial)): s for s in CAMPAIGN.sessions}


wildcard_constraints:
    variant="|".join(map(re.escape, CAMPAIGN.variants)),
    server=r"[0-9a-f]{8}",
    trial=r"[1-9]\d*",
    workload="|".join(map(re.escape, CAMPAIGN.workloads)),
    point=r"[0-9a-f]{8}",
    concurrency=r"[1-9]\d*",


# The process that owns the servers which this run starts: the main Snakemake, or the one that
# runs a group job on a cluster node. Job processes inherit it.
if not workflow.subprocess_exec:
    flow.become_owner()
if workflow.is_main_process:
    flow.drop_stale_handles(glob.glob(HANDLES))


# One session at a time on a device, unless a profile or the command line says otherwise.
resource_scopes:
    **{f"device_{name}": "local" for name in CAMPAIGN.devices},


for _device in CAMPAIGN.devices:
    if f"device_{_device}" not in workflow.global_resources:
        workflow.register_resource(f"device_{_device}", 1)


def device_claims():
    """`resources:` of a job that needs its session's devices, whichever those are."""

    def claim(device):
        return lambda wildcards: int(
            device in CAMPAIGN.variants[wildcards.variant].devices
        )

    return {f"device_{name}": claim(name) for name in CAMPAIGN.devices}


@functools.cache
def claim_folder():
    """Once a run, and not while the Snakefile is read: the executor is not known then."""
    if workflow.is_main_process:
        run_lock.claim(cluster=workflow.non_local_exec)


# ------------------------------------------------------------------ of a session


def session_of(wildcards):
    return SESSIONS[wildcards.variant, wildcards.trial]


def start_priority(wildcards):
    """Sessions start in their order, and none before the running one has ended."""
    return len(SESSIONS) - session_of(wildcards).rank


def server_spec(wildcards):
    return flow.Untracked(flow.server_spec(CAMPAIGN, session_of(wildcards)))


def server_log(wildcards):
    log = f"{LOGS}/{layout.SESSION_TEMPLATE}".format(**wildcards)
    return flow.Untracked(f"{log}/server-{{session_id}}.log")


def model_file(wildcards):
    """The model's file, where the campaign names one."""
    path = CAMPAIGN.model.path
    return ancient(path) if path else []


def points_before_stop(wildcards):
    claim_folder()
    points = layout.points_of(CAMPAIGN, session_of(wildcards))
    return [file for point in points for file in point.files]


# ------------------------------------------------------------------ of a point


def measuring_priority(wildcards):
    """Above every start; within a session the points in their drawn order."""
    points = CAMPAIGN.points(int(wildcards.trial))
    point = (wildcards.workload, int(wildcards.concurrency))
    place = points.index(point) if point in points else len(points)
    return 20_000 - place


def point_spec(wildcards):
    return flow.Untracked(
        flow.point_spec(
            CAMPAIGN,
            session_of(wildcards),
            wildcards.workload,
            int(wildcards.concurrency),
        )
    )


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


# ------------------------------------------------------------------ of the campaign


def point_files(wildcards):
    """All files of all points."""
    return [file for point in layout.points(CAMPAIGN) for file in point.files]


def whole_points(wildcards):
    """The file of each point that is written last."""
    return [point.file for point in layout.points(CAMPAIGN)]


def all_stops(wildcards):
    return [
        str(layout.session_folder(CAMPAIGN, session) / "stopped.json")
        for session in CAMPAIGN.sessions
    ]


def modules(*patterns):
    """Modules and templates whose edit makes a result due, as inputs."""
    folder = "workflow/scripts/crossover"
    return sorted(
        file for pattern in patterns for file in glob.glob(f"{folder}/{pattern}")
    )
