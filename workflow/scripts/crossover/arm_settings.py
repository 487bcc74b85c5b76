"""The settings of one arm, from what was recorded of its sessions, under flat names.

`--flag` is a flag of the server's command, `$NAME` a variable that was set for it, and
`server: a.b` an entry of the server's own account. A flag or an entry that holds JSON gives a
name for each of its values: `--speculative-config.method`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossover import engines
from crossover.engines.base import Engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd

COMMAND, ACCOUNT = "the server's command", "the server's own account of its settings"
"""What settings are read from."""

_FLAG = re.compile(r"-{1,2}[A-Za-z]")


@dataclass(frozen=True)
class ArmSettings:
    """What all sessions of an arm agree on; a port or a clock, which they do not share, is out."""

    by_source: Mapping[str, Mapping[str, Any] | None]
    """source → name → value; None: at least one session did not record that source"""
    varying: frozenset[str]
    """names with different values in different sessions of the arm"""
    engine: type[Engine]

    @classmethod
    def of(cls, sessions: Sequence[Mapping[str, Any]]) -> ArmSettings:
        """The settings of the sessions, rows of records.SESSIONS, of one arm."""
        by_source: dict[str, Mapping[str, Any] | None] = {}
        varying: set[str] = set()
        for source, read in ((COMMAND, _of_command), (ACCOUNT, _of_account)):
            recorded = [read(session) for session in sessions]
            if not recorded or None in recorded:
                by_source[source] = None
                continue
            names = set().union(*recorded)
            differing = {n for n in names if any(r.get(n) != recorded[0].get(n) for r in recorded)}
            by_source[source] = {n: recorded[0].get(n) for n in names - differing}
            varying |= differing
        return cls(by_source, frozenset(varying), _engine(sessions))

    def differences(self, other: ArmSettings) -> dict[str, tuple[Any, Any]]:
        """Name → (value here, value there) where they differ; None: not given.

        Only of sources that both arms recorded.
        """
        found = {}
        skipped = self.varying | other.varying
        for source, ours in self.by_source.items():
            theirs = other.by_source[source]
            if ours is None or theirs is None:
                continue
            for name in sorted((ours.keys() | theirs.keys()) - skipped):
                if ours.get(name) != theirs.get(name):
                    found[name] = (ours.get(name), theirs.get(name))
        return found

    def belongs_to_speculation(self, name: str) -> bool:
        """Whether a setting is one of speculation, in this arm's engine."""
        return re.search(self.engine.speculation_settings, name, re.IGNORECASE) is not None

    def dials_acceptance(self, name: str) -> bool:
        """Whether a setting changes how much is accepted and not what a step costs."""
        dial = self.engine.acceptance_settings
        return dial is not None and re.search(dial, name, re.IGNORECASE) is not None


def sessions_of(points: pd.DataFrame, sessions: pd.DataFrame, variant: str) -> list[dict[str, Any]]:
    """The sessions, as dicts, in which the variant's points were measured; missing is None."""
    measured_in = set(points.loc[points["variant"] == variant, "session_id"].dropna())
    rows = sessions[sessions["session_id"].isin(measured_in)].to_dict("records")
    return [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for row in rows
    ]


def description_of(session: Mapping[str, Any]) -> dict[str, Any]:
    """What the server said of itself; empty where nothing was recorded."""
    return json.loads(session.get("description") or "{}")


def _engine(sessions: Iterable[Mapping[str, Any]]) -> type[Engine]:
    """The kind of server; what all engines have in common where it is none of ours."""
    names = {session.get("engine") for session in sessions}
    name = names.pop() if len(names) == 1 else None
    return type(engines.get(name)) if name in engines.ENGINES else Engine


def _of_command(session: Mapping[str, Any]) -> dict[str, Any] | None:
    if session.get("command") is None:
        return None
    env = dict(session.get("env") or {})
    given: dict[str, list[Any]] = {}
    for name, value in _flags(session["command"]):
        given.setdefault(name, []).append(value)
    flags = {name: v[0] if len(v) == 1 else v for name, v in given.items()}
    return {**flags, **{f"${k}": v for k, v in env.items()}}


def _flags(command: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(name, value) of every flag, the words before the first one under `program`."""
    name, values = "program", []
    for word in command:
        if not _FLAG.match(word):
            values.append(word)
            continue
        yield from _flat(name, _value(values))
        name, equals, value = word.partition("=")
        values = [value] if equals else []
    yield from _flat(name, _value(values))


def _value(words: Sequence[str]) -> Any:
    """A flag's value: True for a bare flag, what JSON it holds, else its words."""
    if not words:
        return True
    text = " ".join(words)
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _of_account(session: Mapping[str, Any]) -> dict[str, Any] | None:
    resolved = description_of(session).get("resolved")
    if not resolved:
        return None
    left_out = _engine([session]).no_settings
    return {
        f"server: {name}": value
        for name, value in _flat("", resolved)
        if left_out is None or not re.match(left_out, name)
    }


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value, or the values in a mapping by their dotted names; lists are values."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, item in value.items():
        yield from _flat(f"{name}.{key}" if name else key, item)
