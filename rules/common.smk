# The campaign, read once, and what the rules need to know of it.

import atexit
import glob
import re

from snakemake.jobs import GroupJob
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.settings.types import DeploymentMethod

from crossover import early_ends, layout, rounds, standing, time_limits
from crossover import workflow as flow
from crossover.campaign import load_campaign
from crossover.campaign_file import read_yaml
from crossover.imports.files import result_files

# the models that the rules of model.smk can make
MADE_MODELS = r"models/smollm2-135m-instruct-(bf16\.gguf|q8_0\.gguf|hf)"

if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method:
    flow.Script.python = "python"  # the job's environment's own

with plain_errors():
    for _file in workflow.configfiles:
        read_yaml(_file)  # Snakemake itself drops all but the last value of a key
    CAMPAIGN = load_campaign(config, flow.config_source(workflow.configfiles))
    flow.check_begun(CAMPAIGN)

RESULTS = f"{layout.RESULTS}/{CAMPAIGN.name}"
LOGS = f"logs/{CAMPAIGN.name}"
SESSION = f"{RESULTS}/{layout.SESSION_TEMPLATE}"
POINT = f"{RESULTS}/{layout.POINT_TEMPLATE}"
HANDLE = f"{SESSION}/handle.json"
HANDLES = re.sub(r"{\w+}", "*", HANDLE)
TABLES = [f"{RESULTS}/{table}.parquet" for table in ("points", "requests", "sessions")]
VERDICTS = [f"{RESULTS}/verdicts.json", f"{RESULTS}/policy.json"]
ROUND = f"{layout.refine_folder(CAMPAIGN)}/round~{{round}}.json"
REPORTS = ["crossover.html", "summary.md", "summary.png", "levels.csv"]
WANTED = [*TABLES, *VERDICTS, *(f"reports/{name}" for name in REPORTS)]


wildcard_constraints:
    variant="|".join(map(re.escape, CAMPAIGN.variants)),
    server=r"[0-9a-f]{8}",
    trial=r"[1-9]\d*",
    workload="|".join(map(re.escape, CAMPAIGN.workloads)),
    point=r"[0-9a-f]{8}",
    round=r"[1-9]\d*",
    axis=CAMPAIGN.load.axis.name,
    level=r"\d[\d.e+-]*",


# The process that owns the servers which this run starts: the main Snakemake, or the one that
# runs a group job on a cluster node. Job processes inherit it.
if not workflow.subprocess_exec:
    flow.become_owner()
    flow.end_on_sigterm(JobScheduler)
if workflow.is_main_process:
    flow.drop_stale_handles(glob.glob(HANDLES))
    FAILED = early_ends.FailedSessions()
    FAILED.watch(GroupJob)
if workflow.remote_exec:  # without hooks, onerror too
    atexit.register(lambda: flow.stop_own_servers(glob.glob(HANDLES)))


# One session at a time on a device, unless a profile or the command line says otherwise.
resource_scopes:
    **{f"device_{name}": "local" for name in CAMPAIGN.devices},


for _device in CAMPAIGN.devices:
    if f"device_{_device}" not in workflow.global_resources:
        workflow.register_resource(f"device_{_device}", 1)


def session_resources(rule_name):
    """`resources:` of a session's job: its devices, what its variant asks for, a time limit."""

    def of_variant(value):
        return lambda wildcards: value(CAMPAIGN.variants[wildcards.variant])

    def claim(device):
        return of_variant(lambda variant: int(device in variant.devices))

    def asked(name):
        return of_variant(lambda variant: variant.resources[name])

    return {
        **{f"device_{name}": claim(name) for name in CAMPAIGN.devices},
        **{name: asked(name) for name in CAMPAIGN.resources},
        "runtime": of_variant(
            lambda variant: time_limits.minutes(CAMPAIGN, variant, rule_name)
        ),
    }


def submits_groups():
    """Whether this process hands sessions to a cluster, instead of running their jobs."""
    return workflow.non_local_exec and workflow.is_main_process


def session_group(wildcards):
    """On a cluster the jobs of a session are one job, on one node.

    The name is the trial's: `group-components` of a profile can put a trial's sessions together.
    """
    in_group = submits_groups() or workflow.remote_exec
    return f"trial{wildcards.trial}" if in_group else None


@functools.cache
def missing_model():
    return flow.missing_model(CAMPAIGN, MADE_MODELS)


@functools.cache
def claim_folder():
    """Once a run, and not while the Snakefile is read: the executor is not known then."""
    if workflow.is_main_process:
        run_lock.claim(cluster=workflow.non_local_exec)
    if workflow.dryrun:
        for note in [*missing_model(), *flow.notes(CAMPAIGN)]:
            print(f"crossover: note: {note}", file=sys.stderr)


# ------------------------------------------------------------------ of a session


@functools.cache
def planned_sessions(rounds_planned):
    """All sessions by variant and trial, as long as no further round is planned."""
    return {(s.variant, str(s.trial)): s for s in layout.sessions(CAMPAIGN)}


def session_of(wildcards):
    sessions = planned_sessions(len(layout.rounds_of(CAMPAIGN)))
    return sessions[wildcards.variant, wildcards.trial]


def start_priority(wildcards):
    """Sessions start in their order, and none before the running one has ended."""
    return 10_000 - session_of(wildcards).rank


def ending_priority(wildcards):
    """Above everything that can wait. Of a group the highest counts: there the session's own."""
    return start_priority(wildcards) if submits_groups() else 30_000


def server_spec(wildcards):
    return flow.Untracked(flow.server_spec(CAMPAIGN, session_of(wildcards)))


def server_log(wildcards):
    log = f"{LOGS}/{layout.SESSION_TEMPLATE}".format(**wildcards)
    return flow.Untracked(f"{log}/server-{{session_id}}.log")


def model_file(wildcards):
    """The model's file, where the campaign names one; of a missing one `onstart` tells."""
    path = CAMPAIGN.model.path
    return ancient(path) if path and not missing_model() else []


def plan_of_session(wildcards):
    """The plan of the round that the session belongs to; a forced run makes it anew first."""
    number = int(wildcards.trial) - rounds.trial_of(1) + 1
    return ancient(ROUND.format(round=number)) if number > 0 else []


def points_before_stop(wildcards):
    """On a node of a cluster only those that are due: it is told of no others."""
    claim_folder()
    points = layout.points_of(CAMPAIGN, session_of(wildcards))
    if workflow.remote_exec:
        due = {
            POINT.format(**job.wildcards_dict)
            for job in workflow.dag_settings.target_jobs
            if job.rulename == "measure_point"
        }
        points = [point for point in points if str(point.folder) in due]
    return [file for point in points for file in point.files]


# ------------------------------------------------------------------ of a point


def level_of(wildcards):
    return CAMPAIGN.load.axis.level(float(wildcards.level))


def measuring_priority(wildcards):
    """Above every start; within a session the points in their drawn order."""
    if submits_groups():
        return start_priority(wildcards)
    planned = layout.points_of(CAMPAIGN, session_of(wildcards))
    points = [(point.workload, point.level) for point in planned]
    point = (wildcards.workload, level_of(wildcards))
    place = points.index(point) if point in points else len(points)
    return 20_000 - place


def point_spec(wildcards):
    long_digest = CAMPAIGN.long_point_digests[wildcards.workload]
    return flow.Untracked(
        flow.point_spec(
            CAMPAIGN,
            session_of(wildcards),
            wildcards.workload,
            level_of(wildcards),
            long_window=wildcards.point == long_digest,
        )
    )


def health_of_point(wildcards):
    """Ancient: a server that was started anew for one level leaves the others alone.

    `ancient` does not keep a job from following a *missing* file that is made anew: where
    health.json was deleted, a point that exists gets an input that nothing makes. So it does on
    a cluster: Snakemake takes no group whose jobs have one between them that is up to date.
    """
    health = f"{SESSION}/health.json".format(**wildcards)
    measured = f"{POINT}/point.json".format(**wildcards)
    if os.path.exists(measured) and (submits_groups() or not os.path.exists(health)):
        return f"{measured}.measured-already"
    return ancient(health)


# ------------------------------------------------------------------ of the campaign


def round_plans(wildcards):
    """The plans of all rounds, the one that is still to be made included.

    It is an input like others, and the job that takes it is looked at anew when it is made, as
    it comes from a checkpoint. `checkpoints.….get()` would not do: a job that waits for that is
    not due where its own files are there, whatever else has changed.
    """
    if not CAMPAIGN.refine.rounds:
        return []
    claim_folder()
    rounds_known = len(layout.rounds_of(CAMPAIGN)) + layout.may_refine(CAMPAIGN)
    return [ROUND.format(round=number + 1) for number in range(rounds_known)]


def point_files(wildcards):
    """All files of all points."""
    claim_folder()
    return [file for point in layout.points(CAMPAIGN) for file in point.files]


def whole_points(wildcards):
    """The file of each point that is written last."""
    return [point.file for point in layout.points(CAMPAIGN)]


def planned_by_now(wildcards):
    """What, as a parameter, makes the summary due: points, and a plan that is still to be made."""
    plans = [plan for plan in round_plans(wildcards) if not os.path.exists(plan)]
    return whole_points(wildcards) + plans


def point_folders(wildcards):
    """A deleted file makes the summary due by its folder's time."""
    return layout.point_folders(CAMPAIGN, make=not workflow.dryrun)


def stops_of(sessions):
    folders = (layout.session_folder(CAMPAIGN, session) for session in sessions)
    return [str(folder / "stopped.json") for folder in folders]


def all_stops(wildcards):
    """With `only: measured` none: the last session may still run, or have been cut off."""
    return [] if CAMPAIGN.only_measured else stops_of(layout.sessions(CAMPAIGN))


def before_round(wildcards):
    """What a round is planned from: the rounds and all points before it, of sessions that ended.

    A plan that exists follows nothing: neither a point that is measured again nor one that is
    added chooses the levels of a round anew. Where all is forced it is made anew like the others.
    """
    trial = rounds.trial_of(int(wildcards.round))
    sessions = [s for s in layout.sessions(CAMPAIGN) if s.trial < trial]
    points = [p.file for s in sessions for p in layout.points_of(CAMPAIGN, s)]
    plans = [ROUND.format(round=number) for number in range(1, int(wildcards.round))]
    kept = os.path.exists(ROUND.format(round=wildcards.round))
    if kept and not workflow.dag_settings.forceall:
        return [ancient(file) for file in plans + points if os.path.exists(file)]
    return plans + points + stops_of(sessions)
