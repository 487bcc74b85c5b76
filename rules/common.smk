# The campaign and its matrix, computed once; what the rules share.

import functools
import glob
import os
import re
import sys

SCRIPTS = os.path.join(str(workflow.basedir), "workflow", "scripts")
if SCRIPTS not in sys.path:
    sys.path.insert(0, SCRIPTS)

from crossover import run_lock, standing
from crossover import workflow as flow
from crossover.campaign import load_campaign
from crossover.errors import plain_errors

# the models that the rule make_model can make
MADE_MODELS = r"models/smollm2-135m-instruct-(bf16|q8_0)\.gguf"

with plain_errors():
    CAMPAIGN = load_campaign(config, flow.config_source(workflow.configfiles))
    flow.check_model(CAMPAIGN, made_by_rule=MADE_MODELS)

RESULTS = f"results/{CAMPAIGN.name}"
SESSION = f"{RESULTS}/{{variant}}/{{server}}/trial~{{trial}}"
POINT = f"{SESSION}/{{workload}}/{{point}}/concurrency~{{concurrency}}"
HANDLE = f"{SESSION}/handle.json"
SESSION_LOGS = SESSION.replace("results/", "logs/", 1)
POINT_LOG = POINT.replace("results/", "logs/", 1) + ".log"
POINT_FILES = ["point.json", "requests.parquet", "chunks.parquet"]
SUMMARIES = [
    f"{RESULTS}/{table}.parquet" for table in ("points", "requests", "sessions")
]
VERDICTS = [f"{RESULTS}/verdicts.json", f"{RESULTS}/policy.json"]


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
    flow.drop_stale_handles(glob.glob(re.sub(r"\{\w+\}", "*", HANDLE)))


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
