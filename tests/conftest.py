"""Options of the tests that can take long, and what runs side by side under `-n`."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("any_machine", deadline=None)
settings.load_profile("any_machine")

SHARED = (
    "by_itself",
    "clone",
    "cluster",
    "imported",
    "live",
    "measured",
    "rated",
    "refined",
)
"""Fixtures made once for several tests, or looked for on the whole machine: one worker's."""


def pytest_itemcollected(item: pytest.Item) -> None:
    shared = [name for name in SHARED if name in getattr(item, "fixturenames", ())]
    whole_module = [] if "integration" in item.path.parts else [item.path.stem]
    for group in shared or whole_module:
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kill-rounds",
        type=int,
        default=0,
        metavar="N",
        help="every cell of the kill matrix N times; without it, one for each kind of kill",
    )
    parser.addoption(
        "--random-kills",
        type=int,
        default=3,
        metavar="N",
        help="runs that are killed at a random moment (default: %(default)s)",
    )
