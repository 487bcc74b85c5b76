"""What a server's flags ask for against its own account of what it applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crossover.arm_settings import ACCOUNT, COMMAND

if TYPE_CHECKING:
    from crossover.arm_settings import ArmSettings


def not_applied(settings: ArmSettings) -> dict[str, tuple[Any, Any]]:
    """Flag → (asked for, applied) where they differ; empty where the server gives no account.

    Of flags whose value is a number or a truth value, against the account's entries of that name.
    Words such as `auto`, and negative numbers, leave the choice to the server.
    """
    asked, applied = (settings.by_source.get(source) or {} for source in (COMMAND, ACCOUNT))
    entries: dict[str, list[bool | float | None]] = {}
    for entry, value in applied.items():
        words = entry.removeprefix("server: ").split(".")
        for first in range(len(words)):
            entries.setdefault(".".join(words[first:]), []).append(_plain(value))
    found = {}
    for flag, value in asked.items():
        if not flag.startswith("--"):
            continue
        name, wanted = flag.removeprefix("--").replace("-", "_"), _plain(value)
        if name not in entries and name.startswith("no_") and wanted is True:
            name, wanted = name.removeprefix("no_"), False
        got = [entry for entry in entries.get(name, ()) if type(entry) is type(wanted)]
        if wanted is not None and wanted >= 0 and got and wanted not in got:
            found[flag] = (wanted, got[0])
    return found


def _plain(value: Any) -> bool | float | None:
    """A truth value or a number, also as text; None: neither."""
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
