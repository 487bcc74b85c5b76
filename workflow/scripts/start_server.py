"""Start one server under a supervisor; return once the supervisor has it."""

import argparse
import json

from crossover.campaign import Variant
from crossover.errors import plain_errors
from crossover.progress import Terminal
from crossover.server import processes
from crossover.server.start import start

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("spec", type=json.loads)
parser.add_argument("--handle", required=True)
parser.add_argument("--server-log", required=True)
args = parser.parse_args()

with plain_errors(), Terminal() as terminal:
    handle = start(
        Variant.from_dict(args.spec["variant"]),
        facts=args.spec["facts"],
        owner=processes.owner(),
        handle=args.handle,
        server_log=args.server_log,
        say=terminal.say,
    )
    print(f"started session {handle.session_id} at {handle.base_url}")
