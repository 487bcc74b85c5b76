"""Which server starts really ran together: the blocks of the analysis, from recorded facts.

The launches of one trial form a block if they ran on the same boot of the same host with the same
engine build and started within a few hours. Differences within a block are free of what drifts
between blocks. On a cluster a node is a host: arms of a trial that ran on two nodes are no block,
and it is told where the nodes are of different types. Where nothing was recorded (imported
results) the trial is the block.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crossover.parity import MACHINE


@dataclass(frozen=True)
class Launch:
    """One start of one server, with what was recorded of it; None: not recorded."""

    variant: str
    trial: Hashable
    session_id: str | None = None
    host: str | None = None
    node_type: str | None = None
    """processor and GPUs of the host, as one string"""
    boot_id: str | None = None
    engine_version: str | None = None
    model_fingerprint: str | None = None
    is_start_of_ours: bool | None = None
    """False: the server was running already, so that this is no fresh start"""
    started_at: float | None = None
    """Unix seconds"""
    inherited_env: frozenset[tuple[str, str]] | None = None
    """(name, value) of the variables that the shell gave the server and that may matter"""

    @classmethod
    def of(cls, point: Mapping[str, Any]) -> Launch:
        """The launch of a point, as a row of `records.POINTS` with its session's facts."""

        def known(column: str) -> Any:
            value = point.get(column)
            return None if value is None or value != value else value

        return cls(
            variant=point["variant"],
            trial=point["trial"],
            session_id=known("session_id"),
            host=known("host"),
            node_type=_node_type(known("hardware")),
            boot_id=known("boot_id"),
            engine_version=known("engine_version"),
            model_fingerprint=known("model_fingerprint"),
            is_start_of_ours=known("is_start_of_ours"),
            started_at=known("session_started_at"),
            inherited_env=None if (env := known("inherited_env")) is None else frozenset(env),
        )

    def could_replace(self, other: Launch, span_h: float) -> bool:
        """Whether it ran on a host of the other's type, and within a block's time of it.

        What two hosts of a type differ in is then one more thing that a start draws anew.
        """
        if self.node_type is None or self.node_type != other.node_type:
            return False
        return abs(_start(self) - _start(other)) <= span_h * 3600

    @property
    def _machine(self) -> tuple[str | None, ...]:
        return (self.host, self.boot_id, self.engine_version)


def _node_type(hardware: str | None) -> str | None:
    known = json.loads(hardware or "{}")
    return json.dumps({key: known[key] for key in MACHINE if key in known}) if known else None


Block = tuple[Hashable, int]
"""(trial, number of the block within the trial)"""


def form_blocks(launches: Iterable[Launch], span_h: float) -> dict[Launch, Block]:
    """The block of every launch.

    Args:
        launches: of the two arms.
        span_h: hours from the first start of a block within which the others must start.
    """
    alike = defaultdict(set)
    for launch in launches:
        alike[launch.trial, launch._machine].add(launch)
    blocks = {}
    numbers = defaultdict(int)
    for (trial, _), group in alike.items():
        first = None
        for launch in sorted(group, key=lambda one: (_start(one), one.variant)):
            if first is None or _start(launch) - first > span_h * 3600:
                first = _start(launch)
                numbers[trial] += 1
            blocks[launch] = (trial, numbers[trial])
    return blocks


def _start(launch: Launch) -> float:
    return 0.0 if launch.started_at is None else launch.started_at


def caveats(
    blocks: Mapping[Launch, Block], variant: str, baseline: str, span_h: float, *, paired: bool
) -> list[dict[str, str]]:
    """What a reader must know about when and on what the two arms ran, as {code, text}."""
    found = []
    apart = _trials_apart(blocks, variant, baseline, span_h)
    if apart:
        trials = ", ".join(f"trial {trial} ({why})" for trial, why in apart.items())
        how = "" if paired else ", so they are compared unpaired"
        found.append(
            {
                "code": "arms_not_contemporaneous",
                "text": f"{variant} and {baseline} did not run together{how}: {trials}. "
                f"Measure both again; where a campaign file measures them, give them a new `epoch`.",
            }
        )
    elif hosts := _hosts_of_one_arm(blocks, variant, baseline):
        found.append(
            {
                "code": "arms_on_other_hosts",
                "text": f"{variant} and {baseline} never ran on the same host ({hosts}): what these "
                "hosts differ in counts as the variant's doing. Keep the sessions of a trial on one "
                "host (docs/cluster.md).",
            }
        )
    if versions := _values(blocks, variant, baseline, "engine_version"):
        found.append(
            {
                "code": "engine_version_differs",
                "text": f"The engine's version is not the same throughout ({versions}): "
                "the difference may be the engine's, not the variant's.",
            }
        )
    if files := _values(blocks, variant, baseline, "model_fingerprint"):
        found.append(
            {
                "code": "model_differs",
                "text": f"The model's file is not the same throughout (size and digest {files}): "
                "give both variants a new `epoch` to measure them on one file.",
            }
        )
    if variables := _variables_that_differ(blocks, variant, baseline):
        found.append(
            {
                "code": "environment_differs",
                "text": f"The shell gave the servers different variables ({variables}): set them "
                "in `env` of the campaign file, which measures again what they change.",
            }
        )
    if running := sorted({one.variant for one in blocks if one.is_start_of_ours is False}):
        found.append(
            {
                "code": "server_not_restarted",
                "text": f"The server of {' and '.join(running)} ran already and was not restarted "
                "between trials: what one start differs from the next is not in the intervals.",
            }
        )
    return found


def _hosts_of_one_arm(blocks: Iterable[Launch], variant: str, baseline: str) -> str | None:
    """The arms' hosts in words, if both are known and have none in common."""
    hosts = defaultdict(set)
    for one in blocks:
        hosts[one.variant].add(one.host)
    if None in hosts[variant] | hosts[baseline] or hosts[variant] & hosts[baseline]:
        return None
    return _values(blocks, variant, baseline, "host")


def _values(blocks: Iterable[Launch], variant: str, baseline: str, fact: str) -> str | None:
    """The values of a fact of the arms in words, if there is more than one."""
    known = {
        arm: sorted({getattr(one, fact) for one in blocks if one.variant == arm} - {None})
        for arm in (baseline, variant)
    }
    if len({value for arm in known.values() for value in arm}) < 2:
        return None
    return "; ".join(f"{arm}: {', '.join(values) or 'unknown'}" for arm, values in known.items())


def _variables_that_differ(blocks: Iterable[Launch], variant: str, baseline: str) -> str:
    """The inherited variables of which the launches saw several values, in words; or none."""
    values = defaultdict(lambda: {baseline: set(), variant: set()})
    launches = [one for one in blocks if one.inherited_env is not None]
    names = {name for one in launches for name, _ in one.inherited_env}
    for one in launches:
        variables = dict(one.inherited_env)
        for name in names:
            values[name][one.variant].add(variables.get(name, "not set"))
    differing = {
        name: arms for name, arms in sorted(values.items()) if len(set.union(*arms.values())) > 1
    }
    return "; ".join(
        f"{name}: "
        + ", ".join(
            f"{arm} {' and '.join(sorted(seen)) or 'unknown'}" for arm, seen in arms.items()
        )
        for name, arms in differing.items()
    )


def _trials_apart(
    blocks: Mapping[Launch, Block], variant: str, baseline: str, span_h: float
) -> dict[Hashable, str]:
    """Trials in which both arms ran but not in one block, each with the reason in words.

    Arms that ran side by side on hosts of one type are compared unpaired, without a reproach.
    """
    arms = defaultdict(lambda: {variant: [], baseline: []})
    for launch in sorted(blocks, key=_start):
        arms[launch.trial][launch.variant].append(launch)
    apart = {}
    for trial, launches in sorted(arms.items(), key=lambda item: str(item[0])):
        ours, theirs = launches[variant], launches[baseline]
        if ours and theirs and not {blocks[a] for a in ours} & {blocks[b] for b in theirs}:
            apart[trial] = _difference(ours[0], theirs[0], span_h)
    return {trial: why for trial, why in apart.items() if why}


def _difference(a: Launch, b: Launch, span_h: float) -> str | None:
    """Why two launches are not of one block; None if only versions or equal hosts differ."""
    if a.host != b.host:
        if a.could_replace(b, span_h):
            return None
        known = None not in (a.node_type, b.node_type) and a.node_type != b.node_type
        types = " of different types" if known else ""
        return f"hosts {a.host or 'unknown'} and {b.host or 'unknown'}{types}"
    if a.boot_id != b.boot_id:
        return "the host was rebooted in between"
    if a.engine_version != b.engine_version:
        return None
    return f"started {math.ceil(abs(_start(a) - _start(b)) / 3600)} h apart"
