# The Python package, and what the rules need of it whether or not there is a campaign.

import functools
import glob
import os
import sys

SCRIPTS = os.path.join(str(workflow.basedir), "workflow", "scripts")
if SCRIPTS not in sys.path:
    sys.path.insert(0, SCRIPTS)

from crossover import run_lock
from crossover.compare.folders import files_in, folders_of
from crossover.errors import plain_errors


def modules(*patterns):
    """Modules and templates whose edit makes a result due, as inputs."""
    folder = "workflow/scripts/crossover"
    return sorted(
        file for pattern in patterns for file in glob.glob(f"{folder}/{pattern}")
    )


def compared_folders(wildcards):
    """The folders that the config's `compare` names."""
    with plain_errors():
        return folders_of(config.get("compare") or "")


@functools.cache
def claim_to_compare():
    """As `claim_folder`, where there is no campaign."""
    if workflow.is_main_process:
        run_lock.claim(cluster=False)


def compared_files(wildcards):
    claim_to_compare()
    return files_in(compared_folders(wildcards))
