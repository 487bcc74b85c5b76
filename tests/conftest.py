"""Options of the tests that can take long."""

from __future__ import annotations

import pytest


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
