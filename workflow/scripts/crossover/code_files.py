"""The files whose edit makes a result due: what a script imports, and the templates beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "crossover"


def code_of(script: Path) -> list[Path]:
    """The script, all modules of this package that it runs, and their packages' templates.

    A module counts where it is imported, also inside a function, and where a string names it, as
    those that are imported by name are. What is imported for type checking only does not run.
    """
    found: set[Path] = set()
    to_read = [script]
    while to_read:
        file = to_read.pop()
        if file in found:
            continue
        found.add(file)
        for name in _names(ast.parse(file.read_bytes())):
            to_read += _modules(name, script.parent)
    templates = {
        file for folder in {f.parent for f in found} for file in folder.glob("templates/*")
    }
    return sorted(found | templates)


def _names(tree: ast.AST) -> Iterator[str]:
    """Dotted names that are imported, and strings that may be such names."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                continue
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module, names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Constant(str(text)):
                yield text.partition(":")[0]
        yield from _names(node)


def _modules(name: str, folder: Path) -> Iterator[Path]:
    """The files that an import of `name` runs: a package's own for each part, then the module's."""
    parts = name.split(".")
    if parts[0] != PACKAGE or not all(map(str.isidentifier, parts)):
        return
    for count in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:count])
        yield from filter(Path.is_file, (place / "__init__.py", place.with_suffix(".py")))
