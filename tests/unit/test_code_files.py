"""The code that a result depends on, computed from the scripts' imports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from crossover.code_files import code_of

SCRIPTS = Path(__file__).parents[2] / "workflow" / "scripts"

LOADED = """
import ast, sys
tree = ast.parse(open(sys.argv[1]).read())
tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
exec(compile(tree, sys.argv[1], "exec"), {})
print(*(m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] == "crossover"))
"""
"""A program that imports what a script imports, and prints the package's modules that this loads."""


def tracked_scripts() -> list[Path]:
    """Those that run as `script:`, whose results follow their code."""
    return [file for file in SCRIPTS.glob("*.py") if "snakemake." in file.read_text()]


@pytest.mark.parametrize("script", tracked_scripts(), ids=lambda script: script.stem)
def test_all_that_a_script_loads_is_code_that_its_result_depends_on(script: Path):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, script],
        env={"PYTHONPATH": str(SCRIPTS)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {Path(file) for file in done.stdout.split()}
    assert loaded
    assert loaded <= set(code_of(script))


def test_no_result_that_is_made_anew_depends_on_how_it_was_measured():
    measuring = {SCRIPTS / f"crossover/{name}.py" for name in ("measure", "load/client", "point")}
    for script in tracked_scripts():
        assert not measuring & set(code_of(script)), script


def package(folder: Path, **files: str) -> Path:
    """A folder of scripts with `script.py` and modules of `crossover`, by dotted name."""
    for name, text in {"crossover.__init__": "", **files}.items():
        file = folder.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "script.py"


def names(files: list[Path], folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in files} - {"crossover/__init__.py"}


def test_modules_count_however_they_are_imported(tmp_path: Path):
    script = package(
        tmp_path,
        **{
            "script": "import crossover.a\nfrom crossover import b\nfrom crossover.c import name\n",
            "crossover.a": "def late():\n    from crossover import d\n",
            "crossover.b": 'NAMED = {"e": "crossover.e:E"}\n',
            **{f"crossover.{name}": "" for name in "cdef"},
        },
    )
    expected = {"script.py", *(f"crossover/{name}.py" for name in "abcde")}
    assert names(code_of(script), tmp_path) == expected


def test_what_only_a_type_checker_imports_does_not_count(tmp_path: Path):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from crossover import a\n"
    script = package(tmp_path, **{"script": text, "crossover.a": ""})
    assert names(code_of(script), tmp_path) == {"script.py"}


def test_templates_beside_a_module_and_the_init_of_its_package_count(tmp_path: Path):
    script = package(
        tmp_path,
        **{
            "script": "from crossover.page import page\n",
            "crossover.page.__init__": "",
            "crossover.page.page": "",
        },
    )
    template = tmp_path / "crossover" / "page" / "templates" / "page.html"
    template.parent.mkdir()
    template.write_text("")
    assert names(code_of(script), tmp_path) == {
        "script.py",
        *(f"crossover/page/{name}" for name in ("__init__.py", "page.py", "templates/page.html")),
    }


def test_modules_that_import_each_other_end(tmp_path: Path):
    script = package(
        tmp_path,
        **{
            "script": "import crossover.a\n",
            "crossover.a": "import crossover.b\n",
            "crossover.b": "import crossover.a\n",
        },
    )
    assert len(code_of(script)) == 4


def test_every_rule_with_a_script_follows_that_scripts_code():
    rules = "".join(file.read_text() for file in (SCRIPTS.parents[1] / "rules").glob("*.smk"))
    kept = "refine_levels.py"  # a plan that exists follows nothing
    assert {*re.findall(r'code_files\("(.+)"\)', rules), kept} == {
        s.name for s in tracked_scripts()
    }
