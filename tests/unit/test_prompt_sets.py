from __future__ import annotations

import itertools
import json

import pytest

from crossover.errors import CampaignError
from crossover.prompt_sets import prompt_set

LINES = [f"question {i}" for i in range(5)]


def some(prompts, count: int, key: str = "k") -> list[tuple[int, str]]:
    return list(itertools.islice(prompts.drawn(key), count))


@pytest.fixture
def file(tmp_path):
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in LINES))
    return tmp_path


def test_a_file_is_used_up_before_it_begins_again(file):
    drawn = some(prompt_set("p.jsonl", file), 15)
    for begin in (0, 5, 10):
        assert sorted(drawn[begin : begin + 5]) == list(enumerate(LINES))
    assert drawn[:5] == drawn[5:10]


def test_another_key_is_another_order(file):
    prompts = prompt_set("p.jsonl", file)
    assert some(prompts, 5, "a") == some(prompts, 5, "a") != some(prompts, 5, "b")


def test_an_edited_file_is_another_set(file):
    before = prompt_set("p.jsonl", file).sha256
    (file / "p.jsonl").write_text('{"prompt": "one"}\n')
    assert prompt_set("p.jsonl", file).sha256 != before


def test_a_text_is_never_used_up_and_no_prompt_has_the_id_of_another():
    drawn = some(prompt_set({"text": "chat"}), 2000)
    assert [number for number, _ in drawn] == list(range(2000))
    assert len({prompt for _, prompt in drawn}) == 2000


def test_points_get_prompts_of_their_own():
    prompts = prompt_set({"text": "code"})
    at_1, at_2 = ({prompt for _, prompt in some(prompts, 50, key)} for key in ("C=1", "C=2"))
    assert at_1.isdisjoint(at_2)


def test_every_text_and_setting_is_a_set_of_its_own():
    sets = [
        *({"text": text} for text in ("agentic", "chat", "code", "summarise")),
        *({"text": "fixed-length", "tokens": tokens} for tokens in (16, 17)),
    ]
    assert len({prompt_set(one).sha256 for one in sets}) == len(sets)
    assert prompt_set(sets[0]).sha256 == prompt_set(sets[0]).sha256


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        ({"text": "fixed-length"}, "takes tokens; none given"),
        ({"text": "chat", "tokens": 5}, "text chat takes no settings; tokens given"),
        ("none.jsonl", "cannot read 'none.jsonl'"),
    ],
)
def test_what_is_no_prompt_set_is_refused(tmp_path, prompts, said):
    with pytest.raises(CampaignError, match=said):
        prompt_set(prompts, tmp_path)
