"""The report's short form, as a Markdown viewer shows it, and the table for spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from html import unescape

import pytest
from markdown_it import MarkdownIt
from report_fixtures import ALL_FAILED, campaign, points, results

from crossover.report import wording
from crossover.report.levels_csv import as_csv
from crossover.report.markdown import PICTURE, escaped, summarise

PNG = b"\x89PNG\r\n\x1a\n"


def shown(markdown):
    """The HTML of Markdown with tables, as pull requests have it."""
    return MarkdownIt("commonmark").enable("table").render(markdown)


def text_of(html):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html))).replace("\u2060", "")


def summary(c, found=None):
    return summarise(*(found or results(c)), campaign=c, generated_at="2025-10-09 12:00 UTC")


def test_it_has_verdict_picture_table_and_limits_in_this_order():
    c = campaign()
    found = results(c, caveats=[{"code": "x", "text": "The arms ran a week apart."}])
    markdown, picture = summary(c, found)
    html = shown(markdown)
    [sentence] = {v["sentence"] for v in found[2]["verdicts"] if v["metric"] == c.analysis.metric}
    places = [
        text_of(html).index(re.sub(r"\s+", " ", sentence)),
        text_of(html).index("ratio [bounds]"),
        text_of(html).index("The arms ran a week apart."),
    ]
    assert places == sorted(places)
    assert re.findall(r'<img src="([^"]*)"', html) == [PICTURE]
    assert picture.startswith(PNG)


def test_its_table_has_the_verdicts_own_levels():
    c = campaign(("plain", "ngram-3", "ngram-5"))
    found = results(c)
    html = shown(summary(c, found)[0])
    tables = [
        [
            re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
            for row in re.findall(r"<tr>(.*?)</tr>", t, re.S)
        ]
        for t in re.findall(r"<table>(.*?)</table>", html, re.S)
    ]
    judged = [v for v in found[2]["verdicts"] if v["metric"] == c.analysis.metric]
    assert len(tables) == len(judged) == 2
    for (head, *rows), verdict in zip(tables, judged, strict=True):
        assert head == ["concurrency", "plain", verdict["variant"], "ratio [bounds]", "result"]
        assert rows == [
            [
                str(n["concurrency"]),
                wording.number(n["baseline_mean"]),
                wording.number(n["variant_mean"]),
                wording.ratio(n["ratio"], n["lo"], n["hi"]),
                {"+": "faster", "-": "slower", "?": "cannot tell"}[n["label"]],
            ]
            for n in verdict["levels"]
        ]


def test_what_was_not_measured_is_said():
    c = campaign()
    table = points(c)
    measured = [p["concurrency"] != 16 or p["variant"] == "plain" for p in table.to_pylist()]
    text = text_of(shown(summary(c, results(c, table.filter(measured)))[0]))
    assert "Not measured ngram-3, code, at concurrency 16 (trials 1, 2, 3)" in text
    assert "at the levels 1, 4, 16, 64; nothing is said of other" in text


def test_without_a_valid_level_there_is_a_picture_that_says_so_and_no_table():
    c = campaign()
    markdown, picture = summary(c, results(c, points(c, {(None,) * 4: ALL_FAILED})))
    assert "<table>" not in shown(markdown)
    assert "No level can be compared." in text_of(shown(markdown)) + markdown
    assert picture.startswith(PNG)


def test_with_one_variant_there_is_nothing_to_compare():
    c = campaign(("plain",))
    markdown, picture = summary(c)
    assert "Only plain was measured" in text_of(shown(markdown))
    assert PICTURE not in markdown
    assert picture.startswith(PNG)


def test_the_same_input_gives_the_same_bytes():
    c = campaign(trials=2)
    assert summary(c) == summary(c)


HOSTILE = [
    "<script>alert(1)</script>",
    "a | b | c",
    "[click](https://example.org) ![x](y)",
    "**bold** _it_ `code` ~~gone~~",
    "1. one",
    "- item",
    "# heading\n\n## next",
    "back\\slash &amp; &lt;b&gt;",
    "red \x1b[31mtext\x1b[0m\u202egnp",
    "https://example.org www.example.org",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_stays_text(text):
    html = shown(f"{escaped(text)}\n\n| head |\n|---|\n| {escaped(text)} |\n")
    assert set(re.findall(r"<(\w+)", html)) == {"p", "table", "thead", "tbody", "tr", "th", "td"}
    plain = re.sub(r"\x1b\[\d*m", "", text)
    plain = re.sub(r"\s+", " ", re.sub(r"[\x00-\x1f\x7f\u202e]", " ", plain))
    assert text_of(html).strip() == f"{plain} head {plain}"


def test_nobody_is_mentioned_and_no_issue_is_linked():
    assert not re.search(r"[@#]\w", escaped("@someone broke #12"))


def test_the_table_for_spreadsheets_has_every_level_of_every_metric():
    _, _, verdicts, _ = results(campaign(trials=1))
    rows = list(csv.DictReader(io.StringIO(as_csv(verdicts))))
    levels = [(v, n) for v in verdicts["verdicts"] for n in v["levels"]]
    assert len({v["metric"] for v, _ in levels}) > 1
    assert len(rows) == len(levels)
    for row, (verdict, level) in zip(rows, levels, strict=True):
        assert (row["variant"], row["metric"]) == (verdict["variant"], verdict["metric"])
        assert float(row["level"]) == level["concurrency"]
        assert float(row["ratio"]) == level["ratio"]
        assert row["lo"] == row["hi"] == ""
