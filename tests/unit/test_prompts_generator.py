import ast
import re
from pathlib import Path

from crossover.campaign import read_prompts
from crossover.code_prompts import COUNT, jsonl, prompts

COMMITTED = Path(__file__).parents[2] / "config" / "prompts" / "code.jsonl"


def test_regenerating_gives_the_committed_file():
    assert jsonl() == COMMITTED.read_text()


def test_no_two_prompts_are_equal():
    committed = read_prompts(COMMITTED.read_bytes(), "code.jsonl")
    assert len(committed) == len(set(committed)) == COUNT >= 600


def test_another_seed_gives_other_prompts():
    assert set(prompts(50, seed=1)).isdisjoint(prompts(50, seed=2))


def test_a_longer_file_begins_with_a_shorter_one():
    assert list(prompts(80))[:50] == list(prompts(50))


def test_the_code_of_every_prompt_is_python_and_holds_what_the_edit_names():
    for prompt in prompts():
        edit, code = re.fullmatch(r"(.*)\n\n```python\n(.*)\n```", prompt, re.DOTALL).groups()
        ast.parse(code)
        for name in re.findall(r"`(\w+)`", edit.split(" to ")[0]):
            assert name in code
