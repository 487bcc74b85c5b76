"""A campaign as it is written down: in YAML, without what YAML lets pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from crossover.campaign import Campaign, load_campaign
from crossover.errors import CampaignError


def read_campaign(file: str) -> Campaign:
    """The campaign in a YAML file.

    Raises:
        CampaignError: see `read_yaml` and `load_campaign`.
    """
    return load_campaign(read_yaml(file), file)


class _PlainLoader(yaml.SafeLoader):
    """Refuses what YAML's own loaders read as something else than was meant, without a word: they
    keep the last of several values of a key, and take a flag's value `off` for false.
    """

    def construct_yaml_bool(self, node: yaml.ScalarNode) -> bool:
        if node.value.lower() not in ("true", "false"):
            raise yaml.MarkedYAMLError(
                problem=f"{node.value} is {str(super().construct_yaml_bool(node)).lower()} to YAML; "
                f'write that, or "{node.value}" in quotes where the word is meant',
                problem_mark=node.start_mark,
            )
        return super().construct_yaml_bool(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {name!r} stands there twice", problem_mark=key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


_PlainLoader.add_constructor("tag:yaml.org,2002:bool", _PlainLoader.construct_yaml_bool)


def read_yaml(file: str | Path) -> Any:
    """What a YAML file holds.

    Raises:
        CampaignError: it is not there, is not YAML, gives a key twice, or says yes, no, on or off.
    """
    try:
        return yaml.load(Path(file).read_text(), _PlainLoader)
    except OSError as error:
        raise CampaignError(f"cannot read {file}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CampaignError(f"{file} is not YAML: {error}") from None
