"""Campaigns that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.containers import Runtime
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
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """A container runtime."""
    runtime = Runtime(tmp_path)
    yield runtime
    runtime.end()
