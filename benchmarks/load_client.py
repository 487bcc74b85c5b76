"""The load client against the truth, beside the C client of the same design and other tools.

    .venv/bin/python benchmarks/load_client.py [--quick] [--json FILE] [--clients A,B] [--rounds N]
    python3 benchmarks/load/install_peers.py        first, for the peers

Every client in turn puts the same load on a ground-truth server (benchmarks/load/truth_server.c),
round by round; the table has medians over the rounds. The machine must be idle otherwise.
docs/load-client.md says how to read it. Exit status 1 where a run of ours had no result.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from load import goals, launch, score, truth
from load.clients import CLIENTS, Client, Crossover, Floor, Load

TOKENS = 64
TTFT_MS = 50.0
RUN_TIMEOUT_S = 600.0
QUICK_S = 285.0
QUICK_LAST_START_S = 210.0


class Level(NamedTuple):
    """A load: `concurrency`, or where that is None an open loop. `clients`: None means all."""

    concurrency: int | None
    requests: int
    itl_ms: float
    clients: tuple[type[Client], ...] | None = None
    request_rate: float | None = None

    def __str__(self) -> str:
        if self.request_rate is None:
            return f"C={self.concurrency}"
        return f"{self.request_rate:g} requests/s"

    @property
    def events_per_s(self) -> float:
        """Offered."""
        if self.request_rate is None:
            return self.concurrency / self.itl_ms * 1000
        return self.request_rate * TOKENS


LEVELS = (
    Level(concurrency=100, requests=1000, itl_ms=20),
    Level(concurrency=1000, requests=2000, itl_ms=40),
    Level(concurrency=1000, requests=3000, itl_ms=20, clients=(Crossover, Floor)),
    *(
        Level(None, 10 * rate, itl_ms=20, clients=(Crossover,), request_rate=rate)
        for rate in (50, 200, 500)
    ),
)


class RunFailed(Exception):
    """A client did not end well."""


def main() -> int:
    args = _arguments()
    began = time.monotonic()
    os.sched_setaffinity(0, truth.client_cores())
    chosen = [client() for client in CLIENTS if not args.clients or client.name in args.clients]
    present = [client for client in chosen if client.version() is not None]
    for client in chosen:
        if client not in present:
            print(f"{client.name} is not installed: python3 benchmarks/load/install_peers.py")
    measured: dict[tuple[Level, str], list[dict[str, Any]]] = defaultdict(list)
    ours_failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        truth.compile_to(folder)
        for round_number in range(1, args.rounds + 1):
            for client in present:
                for level in LEVELS:
                    if level.clients and type(client) not in level.clients:
                        continue
                    elapsed_s = time.monotonic() - began
                    where = f"round {round_number}, {client.name}, {level}"
                    if args.quick and elapsed_s > QUICK_LAST_START_S:
                        print(f"{where}: left out, no time for it in a quick run", flush=True)
                        continue
                    timeout_s = QUICK_S - elapsed_s if args.quick else RUN_TIMEOUT_S
                    try:
                        row = run(client, level, folder, timeout_s)
                    except RunFailed as error:
                        print(f"{where}: no result: {error}", flush=True)
                        ours_failed |= isinstance(client, Crossover)
                        continue
                    measured[level, client.name].append(row)
                    print(f"{where}: {row['cpu_us_per_token_event']:.1f} µs an event", flush=True)
    by_level = sorted(measured.items(), key=lambda item: LEVELS.index(item[0][0]))
    rows = [_median(rows) for _, rows in by_level]
    _print_table([level for (level, _), _ in by_level], rows)
    if any(row["client"] == Crossover.name for row in rows):
        for line in goals.lines(rows, [c for c in present if isinstance(c, Crossover)]):
            print(line)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n")
    return int(ours_failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [client.name for client in CLIENTS]
    parser.add_argument("--quick", action="store_true", help="one round, at most 5 minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table's rows there")
    parser.add_argument("--rounds", type=int, metavar="N", help="default: 3, or 1 with --quick")
    parser.add_argument("--clients", metavar="A,B", help=f"of {', '.join(names)}; default: all")
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.clients = args.clients.split(",") if args.clients else []
    if unknown := sorted(set(args.clients) - set(names)):
        parser.error(f"no such client: {', '.join(unknown)}; there are {', '.join(names)}")
    return args


# ---------------------------------------------------------------- one run


def run(client: Client, level: Level, folder: Path, timeout_s: float) -> dict[str, Any]:
    """One run of one client on a server of its own; the row of the table.

    Raises:
        RunFailed: the client ended with an error, or took longer than `timeout_s`.
    """
    with truth.Server(folder, TTFT_MS, level.itl_ms) as server:
        load = Load(
            folder, server.port, level.concurrency, level.requests, TOKENS, level.request_rate
        )
        process = _run(client.command(load), client.environment, timeout_s)
    true = server.arrivals()
    reported = client.reported(load, process.printed)
    events = int((true["event"] > 0).sum())
    first_request_ns = int(true["ns"][true["event"] == 0].min())
    return {
        "client": client.name,
        "concurrency": level.concurrency,
        "request_rate": level.request_rate,
        "itl_ms": level.itl_ms,
        "token_events": events,
        "cpu_us_per_token_event": process.cpu_s * 1e6 / events,
        "run_cpu_us_per_token_event": None
        if reported.run_cpu_s is None
        else reported.run_cpu_s * 1e6 / events,
        **score.errors(reported, true),
        **score.send_slips(reported, true),
        "connect_ms": reported.connect_ms,
        "start_s": (first_request_ns - process.started_ns) / 1e9,
        "last_token_to_result_s": (process.ended_ns - int(true["ns"].max())) / 1e9,
        "peak_rss_mib": process.peak_rss_mib,
        "version": client.version(),
    }


def _run(words: list[str], environment: Mapping[str, str], timeout_s: float) -> launch.Ended:
    """Run a command from a small process: what a process held before exec counts as its memory."""
    with tempfile.TemporaryDirectory() as temporary:
        files = [Path(temporary) / name for name in ("ended", "printed", "errors")]
        launcher = [sys.executable, "-I", "-S", launch.__file__, *map(str, files), str(timeout_s)]
        subprocess.run([*launcher, *words], env={**os.environ, **environment}, check=True)
        ended, printed, errors = (file.read_text(errors="replace") for file in files)
    ended = launch.Ended(printed=printed, **json.loads(ended))
    if ended.exit_code:
        late = (ended.ended_ns - ended.started_ns) / 1e9 > timeout_s
        why = f"not ended after {timeout_s:.0f} s" if late else f"exit {ended.exit_code}"
        last_line = "".join(errors.strip().splitlines()[-1:])
        raise RunFailed(f"{why}; its last line: {last_line or 'none'}")
    return ended


# ---------------------------------------------------------------- the table


def _median(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of every measured column over the rounds of one client and level."""

    def middle(column: str) -> Any:
        values = [row[column] for row in rows]
        return values[0] if isinstance(values[0], str | None) else statistics.median(values)

    return {column: middle(column) for column in rows[0]} | {"rounds": len(rows)}


_COLUMNS = (
    ("client", "client", "{}"),
    ("CPU µs/event", "cpu_us_per_token_event", "{:.1f}"),
    ("run only", "run_cpu_us_per_token_event", "{:.1f}"),
    ("stamp error p50 µs", "stamp_error_p50_us", "{:.1f}"),
    ("p99 µs", "stamp_error_p99_us", "{:.1f}"),
    ("merged", "merged_share", "{:.3%}"),
    ("TTFT error ms", "ttft_error_ms", "{:+.2f}"),
    ("ITL error µs", "itl_error_us", "{:+.1f}"),
    ("ITL p99 error ms", "itl_p99_error_ms", "{:+.2f}"),
    ("send slip p50 ms", "send_slip_p50_ms", "{:.2f}"),
    ("p99 ms", "send_slip_p99_ms", "{:.2f}"),
    ("connect ms", "connect_ms", "{:.2f}"),
    ("start s", "start_s", "{:.2f}"),
    ("last token to result s", "last_token_to_result_s", "{:.2f}"),
    ("peak MiB", "peak_rss_mib", "{:.0f}"),
    ("rounds", "rounds", "{}"),
    ("version", "version", "{}"),
)


def _print_table(levels: list[Level], rows: list[dict[str, Any]]) -> None:
    cores = len(truth.client_cores())
    above = None
    for level, row in zip(levels, rows, strict=True):
        if level != above:
            above = level
            print(
                f"\n{level}, TTFT {TTFT_MS:g} ms, a token each {level.itl_ms:g} ms "
                f"({level.events_per_s:,.0f} events/s), {TOKENS} tokens an answer, "
                f"{cores} client core(s)\n"
            )
            print("| " + " | ".join(title for title, _, _ in _COLUMNS) + " |")
            print("|" + "---|" * len(_COLUMNS))
        cells = ["–" if row[key] is None else form.format(row[key]) for _, key, form in _COLUMNS]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
