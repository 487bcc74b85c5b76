import pytest
import yaml

from crossover.engines.flags import fill, flags


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("ctx-size: 4096", ["--ctx-size", "4096"]),
        ("tensor_parallel: 2", ["--tensor_parallel", "2"]),
        ("-ngl: 99", ["-ngl", "99"]),
        ("--seed: 1", ["--seed", "1"]),
        ("metrics: true", ["--metrics"]),
        ("metrics: false", []),
        ("metrics: null", []),
        ("rate: 1.0", ["--rate", "1.0"]),
        ("offset: 0", ["--offset", "0"]),
        ("name: ''", ["--name", ""]),
        ("middleware: [[a.B], [c.D, e]]", ["--middleware", "a.B", "--middleware", "c.D", "e"]),
        ("cuda-graph-bs: [1, 2, 4]", ["--cuda-graph-bs", "1", "2", "4"]),
        (
            "speculative-config: {method: ngram, k: 3, deep: [true, null]}",
            ["--speculative-config", '{"deep":[true,null],"k":3,"method":"ngram"}'],
        ),
    ],
)
def test_a_flag_is_passed_through_unchanged(args, expected):
    assert flags(yaml.safe_load(args)) == expected


def test_flags_come_in_alphabetical_order_whatever_the_files_order():
    assert flags({"b": 1, "a": True, "c": [2]}) == ["--a", "--b", "1", "--c", "2"]


def test_a_mapping_is_canonical():
    assert flags({"x": {"a": 1, "b": 2}}) == flags({"x": {"b": 2, "a": 1}})


def test_only_known_placeholders_are_filled():
    command = ["{python}", "--port={port}", '{"model":{"port":1}}', "{other}", "{}", "{model}"]
    filled = fill(command, python="py", port=8000, model="a{port}")
    assert filled == ["py", "--port=8000", '{"model":{"port":1}}', "{other}", "{}", "a{port}"]


def test_a_placeholder_without_a_value_is_an_error():
    with pytest.raises(KeyError, match="model"):
        fill(["{model}"], port=1)
