import ast
import itertools
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crossover import texts
from crossover.gguf_model import packaged_model
from crossover.prompt_sets import read_prompts
from crossover.texts import agentic, fixed_length, summarise

ROOT = Path(__file__).parents[2]
PROMPTS = ROOT / "config" / "prompts"
SETTINGS = {"fixed-length": {"tokens": 64}}


def some(text: str, count: int, seed: int | str = 1) -> list[str]:
    return list(itertools.islice(texts.distinct(text, seed, **SETTINGS.get(text, {})), count))


def test_regenerating_gives_the_committed_file():
    committed = (PROMPTS / "code.jsonl").read_text()
    count = len(read_prompts(committed.encode(), "code.jsonl"))
    done = subprocess.run(
        [sys.executable, "-m", "crossover.texts", "code", str(count)],
        cwd=ROOT / "workflow/scripts",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == committed


@pytest.mark.parametrize("text", texts.TEXTS)
class TestEveryText:
    def test_gives_thousands_of_prompts_no_two_of_them_equal(self, text: str):
        assert len(set(some(text, 3000))) == 3000

    def test_the_same_seed_gives_the_same_and_another_seed_others(self, text: str):
        assert some(text, 20, "a") == some(text, 20, "a")
        assert set(some(text, 20, "a")).isdisjoint(some(text, 20, "b"))

    def test_leaves_no_gap_open_and_no_edge_ragged(self, text: str):
        for prompt in some(text, 300):
            assert prompt == prompt.strip()
            assert not re.search(r"\{[a-z]+\}", prompt)
            assert "  " not in prompt or text in ("agentic", "code")


def test_a_text_that_repeats_itself_gives_each_prompt_once(monkeypatch):
    module = type(sys)("few")
    module.prompts = lambda draw: iter(["a", "b", "a", "c", "b"])
    monkeypatch.setitem(sys.modules, "few", module)
    monkeypatch.setitem(texts.TEXTS, "few", "few")
    assert list(texts.distinct("few", 1)) == ["a", "b", "c"]


def test_the_code_of_every_prompt_is_python_and_holds_what_the_edit_names():
    for prompt in some("code", 800):
        edit, code = re.fullmatch(r"(.*)\n\n```python\n(.*)\n```", prompt, re.DOTALL).groups()
        ast.parse(code)
        for name in re.findall(r"`(\w+)`", edit.split(" to ")[0]):
            assert name in code


def test_agents_share_a_long_beginning():
    (shared,) = {prompt.split("Task:")[0] for prompt in some("agentic", 50)}
    assert shared.startswith(agentic.INSTRUCTIONS)
    assert all(f"- {tool}(" in shared for tool in agentic.TOOLS)
    assert len(shared.split()) > 120


def test_a_report_names_its_people_and_figures_more_than_once():
    """What n-gram speculation lives on: the answer's phrases stand in the prompt."""
    for prompt in some("summarise", 60):
        people = [person for person in summarise.PEOPLE if person in prompt]
        assert len(people) == 3
        assert all(prompt.count(person) >= 2 for person in people)
        assert 180 < len(prompt.split()) < 300


def test_what_comes_later_in_a_report_is_later():
    months = {month: number for number, month in enumerate(summarise.MONTHS)}
    for prompt in some("summarise", 60):
        if found := re.search(r"Between (\w+) and (\w+),.* on \d+ (\w+), when", prompt, re.DOTALL):
            first, second, third = (months[month] for month in found.groups())
            assert first < second < third


def test_every_word_of_a_fixed_length_is_one_token():
    gguf = pytest.importorskip("gguf")
    tokens = gguf.GGUFReader(packaged_model()).fields["tokenizer.ggml.tokens"].contents()
    vocabulary = set(tokens)
    words = {
        *fixed_length.ARTICLES,
        *fixed_length.QUALITIES,
        *fixed_length.THINGS,
        *fixed_length.DEEDS,
        *fixed_length.PLACES,
        "the",
    }
    assert {word for word in words if f"Ġ{word}" not in vocabulary} == set()
    assert {word for word in fixed_length.ARTICLES if word not in vocabulary} == set()
    assert "." in vocabulary


@pytest.mark.parametrize("tokens", [1, 12, 256])
def test_a_fixed_length_is_kept(tokens: int):
    for prompt in itertools.islice(fixed_length.prompts(random.Random(1), tokens), 20):
        assert len(re.findall(r"\w+|\.", prompt)) == tokens
