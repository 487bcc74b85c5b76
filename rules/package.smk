# The Python package, and what the rules need of it whether or not there is a campaign.
# Snakemake's files share their names: what is imported here is there in those that come after.

import functools
import os
import sys
from pathlib import Path

SCRIPTS = Path(str(workflow.basedir)) / "workflow" / "scripts"
if str(SCRIPTS) not in sys.path:
    sys.path.insert(0, str(SCRIPTS))

from crossover import run_lock
from crossover.code_files import code_of
from crossover.compare.folders import files_in, folders_of
from crossover.errors import plain_errors


@functools.cache
def code_files(script):
    """Modules and templates whose edit makes the results of a script due, as inputs."""
    return [os.path.relpath(file) for file in code_of(SCRIPTS / script)]


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
