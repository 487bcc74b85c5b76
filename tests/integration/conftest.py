"""Campaigns that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.containers import runtime
from integration.workflow_copy import Workflow


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A campaign that was measured once, with `-c1`; tests copy it before they change it."""
    workflow = Workflow.fresh(tmp_path_factory.mktemp("measured") / "workflow")
    workflow.run("-c1", "reports/crossover.html")
    return workflow


@pytest.fixture
def workflow(measured: Workflow, tmp_path: Path) -> Workflow:
    """A measured campaign to change."""
    return measured.copied_to(tmp_path / "workflow")


@pytest.fixture
def container(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Settings of a variant whose server runs in a container."""
    with runtime(tmp_path) as settings:
        yield settings
