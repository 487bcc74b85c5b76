from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LOCKED = dict(re.findall(r"^([\w.-]+)==(\S+) \\", (ROOT / "requirements.txt").read_text(), re.M))


def pins(path: Path) -> dict[str, str]:
    """Package → version, of a conda file's pip section or of a list of requirements."""
    text = path.read_text()
    if path.suffix == ".yaml":
        parts = yaml.safe_load(text)["dependencies"]
        text = "\n".join(next(part["pip"] for part in parts if isinstance(part, dict)))
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M))


def test_the_conda_environment_has_the_versions_of_the_lock_file():
    versions = pins(ROOT / "envs/workflow.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["llamacpp"]]
    assert set(versions) == {re.split("[<>=]", d)[0] for d in needed}
    for name, version in versions.items():
        assert LOCKED[name] == version


def documented() -> list[tuple[str, str, str, str]]:
    """(file, package, version, image) of the rows of docs/engines.md."""
    text = (ROOT / "docs/engines.md").read_text()
    return re.findall(r"^\| `envs/([\w.-]+)` \| (\S+) (\S+) \| `?([^`|]+?)`? \|$", text, re.M)


def test_the_page_on_engines_names_every_environment():
    files = {path.name for path in (ROOT / "envs").iterdir() if path.suffix in (".yaml", ".txt")}
    assert {file for file, *_ in documented()} == files


@pytest.mark.parametrize(("file", "package", "version", "image"), documented())
def test_an_environment_has_the_versions_that_the_page_on_engines_names(
    file: str, package: str, version: str, image: str
):
    path = ROOT / "envs" / file
    assert pins(path)[package] == version
    images = re.findall(r"^# image: (\S+)$", path.read_text(), re.M)
    assert images == ([] if image == "–" else [image])
    assert all(name.endswith(f":v{version}") for name in images)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_gpu_machine_runs_the_versions_of_the_environments(engine: str):
    carried = pins(ROOT / f"benchmarks/gpu/requirements/{engine}.txt")
    assert carried[engine] == pins(ROOT / f"envs/{engine}.yaml")[engine]


def test_lock_files_carry_hashes_and_no_addresses():
    for name in ("requirements.txt", "requirements-model.txt"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        assert "--index-url" not in text
        pins = re.findall(r"^[\w.-]+==", text, re.M)
        assert pins
        assert text.count("--hash=sha256:") >= len(pins)
