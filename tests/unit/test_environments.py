from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
LOCKED = dict(re.findall(r"^([\w.-]+)==(\S+) \\", (ROOT / "requirements.txt").read_text(), re.M))


def test_the_conda_environment_has_the_versions_of_the_lock_file():
    env = yaml.safe_load((ROOT / "envs/workflow.yaml").read_text())
    (pinned,) = [part["pip"] for part in env["dependencies"] if isinstance(part, dict)]
    versions = dict(package.split("==") for package in pinned)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(versions) == {re.split("[<>=]", d)[0] for d in project["dependencies"]}
    for name, version in versions.items():
        assert LOCKED[name] == version


def test_lock_files_carry_hashes_and_no_addresses():
    for name in ("requirements.txt", "requirements-model.txt"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        assert "--index-url" not in text
        pins = re.findall(r"^[\w.-]+==", text, re.M)
        assert pins
        assert text.count("--hash=sha256:") >= len(pins)
