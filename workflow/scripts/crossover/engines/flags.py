"""From a variant's `args` to a command line, and from a command's placeholders to values."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from crossover.errors import CampaignError

PLACEHOLDERS = ("port", "model", "model_name", "python", "engines", "name")
"""All that a command may leave open.

port: where the server shall listen; model: path of the weights, or the model's name where there
is no path; model_name: the name under which it is served; python: this interpreter; engines: the
folder of this file; name: one that no other server has, e.g. for a container. They keep machine paths out of a campaign's digests.
"""

_PLACEHOLDER = re.compile("{(" + "|".join(PLACEHOLDERS) + ")}")
_LIKE_ONE = re.compile(r"(?<![${%])\{([A-Za-z_]\w*)\}(?!\})")
"""Not `${NAME}`, which the shell gives, nor the `{{name}}` and `%{name}` of other programs."""


def flags(args: Mapping[str, Any]) -> list[str]:
    """The engine's own flags with their names unchanged, in alphabetical order.

    So that two files which differ in the order of keys give the same command, and no new results.

    `ctx-size` becomes `--ctx-size`, and an underscore is not a dash; a key that begins with `-`
    is kept. True gives a bare flag, False and None give none, a list gives the flag followed by
    its items, a list of lists the flag once for each of them, a mapping gives JSON; anything else
    is written as Python writes it.
    """
    command: list[str] = []
    for key, value in sorted(args.items()):
        if value is None or value is False:
            continue
        flag = key if key.startswith("-") else f"--{key}"
        for items in value if _is_repeated(value) else [value]:
            listed = items if isinstance(items, (list, tuple)) else [items]
            command += [flag, *(_text(item) for item in listed if items is not True)]
    return command


def _is_repeated(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(v, (list, tuple)) for v in value)


def refuse_own(args: Mapping[str, Any], own: Collection[str]) -> None:
    """Raise CampaignError for a key of `args` that is one of the flags that a command sets itself."""
    for key in args:
        if key.lstrip("-").replace("_", "-") in own:
            raise CampaignError(
                f"args: {key!r} is set by the workflow; leave it out, the model is `model:`"
            )


def is_left_open(word: str) -> bool:
    """Whether a word of a command holds a placeholder."""
    return _PLACEHOLDER.search(word) is not None


def refuse_unknown(key: str, words: Collection[str]) -> None:
    """Raise CampaignError for what looks like a placeholder in the variant's `key` and is none."""
    for name in _LIKE_ONE.findall(" ".join(words)):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            raise CampaignError(f"{key}: {{{name}}} is no placeholder; known: {known}")


def refuse_two_spellings(args: Mapping[str, Any]) -> None:
    """Raise CampaignError where two keys are one flag to the server: it would take either."""
    spelled: dict[str, str] = {}
    for key in args:
        other = spelled.setdefault(key.lstrip("-").replace("_", "-"), key)
        if other != key:
            raise CampaignError(f"args: {other!r} and {key!r} are one flag; leave one of them out")


def whole_number(key: str, value: Any) -> int:
    """A flag's value as a number of tokens.

    Raises:
        CampaignError: it is none.
    """
    try:
        return int(value)
    except (TypeError, ValueError):
        raise CampaignError(f"args.{key}: {value!r} is no number of tokens") from None


def without_shell_values(args: Mapping[str, Any]) -> dict[str, Any]:
    """The args whose values stand in the campaign: those of `${NAME}` are known at the start only."""
    return {key: value for key, value in args.items() if "${" not in _text(value)}


def fill(command: Sequence[str], **values: Any) -> list[str]:
    """`command` with its PLACEHOLDERS replaced; all other braces, such as JSON's, are left alone.

    Raises:
        KeyError: the command holds a placeholder that `values` has no value for.
    """
    return [_PLACEHOLDER.sub(lambda match: str(values[match[1]]), word) for word in command]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return str(value)
