"""Text `agentic`: one turn of a coding agent, deep in its work. About 900 words.

Instructions and tools, the same in every prompt, then steps that the agent has taken and what its
tools answered, then what to do next. Every request gets a first line of its own, so that the
instructions are prefilled each time, as for an agent's first turn.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from crossover.texts.code import CODES, FIELDS, NEW_NAMES, NOUNS, VERBS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

STEPS = 12

INSTRUCTIONS = """\
You maintain a Python program. Work in small steps. At every step write one short paragraph on what
you know and what is still open, then call exactly one tool. Change no file that you have not read.
Run the tests after every change; where one fails, find out why before you change anything else. Do
not repeat a call whose answer you already have. When the task is done, call `finish` with a summary
that names every file you have changed and why."""

TOOLS = {
    "list_files": ("folder", "the names of the files in a folder, one a line"),
    "read_file": ("path", "the file's content with line numbers"),
    "search": ("pattern", "all lines of the program that match a regular expression"),
    "edit_file": ("path, old, new", "replaces text that occurs exactly once in the file"),
    "run_tests": ("path", "the summary of the tests in a file, failures with their tracebacks"),
    "finish": ("summary", "ends the task"),
}

TASKS = (
    "Rename the field `{field}` to `{new}` everywhere in `{noun}.py` and in its tests.",
    "`{verb}_{noun}` loses `{field}` when it is None. Find the cause, repair it and test it.",
    "Add a function to `{noun}.py` that gives the sum of `{field}` over all of them, with a test.",
)


def prompts(draw: random.Random) -> Iterator[str]:
    """Without end, the kinds of task evenly mixed."""
    for task in itertools.cycle(TASKS):
        yield _prompt(task, draw)


def _prompt(task: str, draw: random.Random) -> str:
    names = {
        "verb": draw.choice(VERBS),
        "noun": draw.choice(NOUNS),
        "field": draw.choice(FIELDS),
        "new": draw.choice(NEW_NAMES),
    }
    tools = "\n".join(f"- {name}({takes}): {gives}." for name, (takes, gives) in TOOLS.items())
    steps = "\n\n".join(_step(number, draw) for number in range(1, STEPS + 1))
    return (
        f"{INSTRUCTIONS}\n\nTools:\n{tools}\n\nTask: {task.format(**names)}\n\n{steps}\n\n"
        f"Step {STEPS + 1}. Go on:"
    )


def _step(number: int, draw: random.Random) -> str:
    """A file that was read, or tests that were run."""
    noun = draw.choice(NOUNS)
    first, second, third, fourth = draw.sample(FIELDS, 4)
    if draw.random() < 1 / 4:
        passed, ms = draw.randrange(4, 90), draw.randrange(80, 3000)
        return (
            f"Step {number}. Nothing that `{noun}` needs has changed yet; its tests say so.\n"
            f"run_tests(tests/test_{noun}.py)\n{passed} passed in {ms} ms"
        )
    functions = "\n\n\n".join(
        code.format(
            verb=draw.choice(VERBS),
            noun=noun,
            first=first,
            second=second,
            third=third,
            fourth=fourth,
        )
        for code in CODES
    )
    lines = "\n".join(f"{i:4} {line}" for i, line in enumerate(functions.split("\n"), 1))
    return (
        f"Step {number}. `{first}` and `{second}` are used together, so `{noun}.py` is next to read.\n"
        f"read_file({noun}.py)\n{lines}"
    )
