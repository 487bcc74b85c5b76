"""docs/engines.md names only tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/engines.md").read_text()


def named() -> list[tuple[str, str]]:
    """(file, test): a table's own file stands in its head, another one before its tests."""
    found, of_table = [], None
    for line in PAGE.splitlines():
        if head := re.match(r"\| trap \| handled \| test(?: in `(\w+\.py)`)?", line):
            of_table = head[1]
        elif line.startswith("| "):
            file = of_table
            for name in re.findall(r"`(test_\w+(?:\.py)?)`", line.split(" | ")[-1]):
                if name.endswith(".py"):
                    file = name
                else:
                    found.append((file, name))
    return found


@pytest.mark.parametrize(("file", "test"), named())
def test_every_test_that_is_named_is_there(file: str, test: str):
    (path,) = (ROOT / "tests").rglob(file)
    assert f"def {test}(" in path.read_text()


def test_every_engine_has_its_traps():
    assert PAGE.count("| trap | handled | test") == 5
    assert len(named()) > 40
