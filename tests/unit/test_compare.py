"""Campaigns side by side: what changed, what cannot be compared, and how the page says it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from report_fixtures import campaign
from result_folders import write_results
from test_report import Document

from crossover.compare import changes
from crossover.compare.folders import apart, files_in, folders_of
from crossover.compare.page import render
from crossover.compare.results import read
from crossover.errors import CampaignError
from crossover.records import POINTS, to_table, write_parquet
from crossover.report import wording
from crossover.report.wording import MISSING


@pytest.fixture
def before(tmp_path):
    return write_results(tmp_path / "before/laptop", campaign())


def page_of(*folders):
    return render(read(folders_of(folders)), generated_at="2025-10-09 12:00 UTC")


def text_of(*folders):
    return Document(page_of(*folders)).text


def after(tmp_path, c=None, **changed):
    return write_results(tmp_path / "after/laptop", c or campaign(), run="second", **changed)


# ------------------------------------------------------------------ the change of a ratio


def test_the_bounds_of_a_change_are_those_of_the_mover_method():
    one = changes.change((1.5, 1.2, 2.0), (1.8, 1.6, 2.0))
    half_down = math.hypot(math.log(1.8 / 1.6), math.log(2.0 / 1.5))
    half_up = math.hypot(math.log(2.0 / 1.8), math.log(1.5 / 1.2))
    assert one.ratio == pytest.approx(1.2)
    assert math.log(one.lo) == pytest.approx(math.log(1.2) - half_down)
    assert math.log(one.hi) == pytest.approx(math.log(1.2) + half_up)


def test_turned_round_a_change_is_its_inverse():
    earlier, later = (1.5, 1.2, 2.0), (0.8, 0.75, 0.83)
    forth, back = changes.change(earlier, later), changes.change(later, earlier)
    assert forth.ratio == pytest.approx(1 / back.ratio)
    assert (forth.lo, forth.hi) == pytest.approx((1 / back.hi, 1 / back.lo))
    assert (forth.label, back.label) == ("-", "+")


@pytest.mark.parametrize(
    ("later", "label"),
    [((1.0, 0.9, 1.1), "?"), ((1.5, 1.4, 1.6), "+"), ((0.5, 0.4, 0.6), "-")],
)
def test_a_change_is_called_one_if_its_bounds_exclude_1(later, label):
    assert changes.change((1.0, 0.95, 1.05), later).label == label


@pytest.mark.parametrize("missing", [(None, None, None), (0.0, 0.0, None)])
def test_without_an_estimate_there_is_no_change(missing):
    assert changes.change((1.0, 0.9, 1.1), missing) is None
    assert changes.change(missing, (1.0, 0.9, 1.1)) is None


def test_without_bounds_a_change_has_none_and_is_not_judged():
    one = changes.change((1.0, None, None), (1.5, 1.4, 1.6))
    assert (one.ratio, one.lo, one.hi, one.label) == (1.5, None, None, None)


# ------------------------------------------------------------------ two campaigns


def test_speed_ups_stand_side_by_side_with_their_ratio(tmp_path, before):
    later = after(tmp_path, speed={"ngram-3": 1.15})
    rows = Document(page_of(before, later)).table("Speed-up, before", "after / before")
    verdicts = [json.loads((Path(f) / "verdicts.json").read_text()) for f in (before, later)]
    [one], [other] = (
        [v for v in document["verdicts"] if v["metric"] == "output_throughput"]
        for document in verdicts
    )
    assert [r["Concurrency"] for r in rows] == [str(n["concurrency"]) for n in one["levels"]]
    for row, a, b in zip(rows, one["levels"], other["levels"], strict=True):
        assert row["Speed-up, before"] == wording.ratio(a["ratio"], a["lo"], a["hi"])
        assert row["Speed-up, after"] == wording.ratio(b["ratio"], b["lo"], b["hi"])
        assert row["after / before"].startswith("1.150 [1.")
        assert row["Change"] == "rose"
    text = text_of(before, later)
    assert one["sentence"].split(":")[0] in text
    assert other["sentence"].split(":")[0] in text
    assert "after against before: the speed-up rose at 1 (×1.15), 4 (×1.15)" in text


def test_a_second_run_of_the_same_servers_shows_no_change(tmp_path, before):
    rows = Document(page_of(before, after(tmp_path))).table("Change")
    assert {r["Change"] for r in rows} == {"cannot tell"}
    assert {r["after / before"][:5] for r in rows} == {"1.000"}


def test_every_verdict_of_either_is_listed(tmp_path, before):
    later = after(tmp_path, campaign(("plain", "ngram-5")))
    rows = Document(page_of(before, later)).table("Comparison", "Metric", "before", "after")
    own = {r["Comparison"]: (r["before"], r["after"]) for r in rows}
    assert own["ngram-3 against plain"][1] == "not in this campaign"
    assert own["ngram-5 against plain"][0] == "not in this campaign"
    text = text_of(before, later)
    assert "there is nothing to set side by side" in text
    assert (
        "Not in all campaigns ngram-3 against plain, code: Output throughput only in before" in text
    )


def test_levels_of_one_campaign_alone_have_no_change(tmp_path, before):
    later = after(tmp_path, campaign(levels=(1, 4, 32)))
    rows = Document(page_of(before, later)).table("Change")
    assert [r["Concurrency"] for r in rows] == ["1", "4", "16", "32", "64"]
    assert [r["Concurrency"] for r in rows if r["after / before"] == MISSING] == ["16", "32", "64"]


def test_three_campaigns_are_each_set_against_the_first(tmp_path, before):
    folders = [
        before,
        after(tmp_path, speed={"ngram-3": 1.15}),
        write_results(tmp_path / "last/laptop", campaign(), run="third", speed={"ngram-3": 0.9}),
    ]
    [row, *_] = Document(page_of(*folders)).table("after / before", "last / before")
    assert row["after / before"].startswith("1.150 ")
    assert row["last / before"].startswith("0.900 ")


# ------------------------------------------------------------------ what cannot be compared


def no_change_is_claimed(html):
    return not any("Change" in table[0] for table in Document(html).tables)


def test_another_model_leaves_the_verdicts_and_no_ratio_of_ratios(tmp_path, before):
    html = page_of(before, after(tmp_path, of_sessions={"model_name": "other"}))
    assert no_change_is_claimed(html)
    text = Document(html).text
    assert "different models (SmolLM2-135M-Instruct against other)" in text
    assert {r["after / before"] for r in Document(html).table("Workload", "after / before")} == {
        "not comparable"
    }


def test_the_same_sessions_are_no_second_measurement(tmp_path, before):
    copy = write_results(tmp_path / "copy/laptop", campaign())
    html = page_of(before, copy)
    assert no_change_is_claimed(html)
    assert "Both hold the same 6 sessions" in Document(html).text


def test_another_work_under_the_same_name_is_not_compared(tmp_path):
    first = write_results(
        tmp_path / "before/x", campaign(), of_points={"prompt_tokens_mean": 512.0}
    )
    later = after(tmp_path, of_points={"prompt_tokens_mean": 256.0, "point_digest": "00000002"})
    html = page_of(first, later)
    assert no_change_is_claimed(html)
    assert "its prompts have 512 tokens on average against 256" in Document(html).text


def test_work_that_may_differ_is_compared_with_a_caution(tmp_path, before):
    html = page_of(before, after(tmp_path, of_points={"point_digest": "00000002"}))
    assert not no_change_is_claimed(html)
    assert "Whether code is the same work in both is not certain" in Document(html).text


def test_points_of_refinement_may_have_longer_windows(tmp_path, before):
    later = after(tmp_path)
    file = Path(later) / "points.parquet"
    points = [{**p, "errors_by_class": {}} for p in pq.read_table(file).to_pylist()]
    refined = [{**p, "trial": 101, "point_digest": "00000002"} for p in points if p["trial"] == 1]
    write_parquet(to_table(points + refined, POINTS), file)
    assert "the same work" not in Document(page_of(before, later)).text


def test_on_other_hardware_speed_ups_are_compared_and_tokens_per_second_are_not(tmp_path, before):
    later = after(tmp_path, of_sessions={"hardware": '{"cpu": "another"}'})
    first = write_results(
        tmp_path / "first/laptop", campaign(), of_sessions={"hardware": '{"cpu": "one"}'}
    )
    html = page_of(first, later)
    assert not no_change_is_claimed(html)
    assert "They ran on different hardware" in Document(html).text
    column = "after / first"
    assert {r[column] for r in Document(html).table("Workload", column)} == {"not comparable"}


def test_on_the_same_hardware_tokens_per_second_are_compared_without_interval(tmp_path):
    same = {"hardware": '{"cpu": "one"}'}
    first = write_results(tmp_path / "before/x", campaign(), of_sessions=same)
    later = after(tmp_path, speed={"plain": 1.2}, of_sessions=same)
    rows = Document(page_of(first, later)).table("Workload", "Variant")
    column = next(name for name in rows[0] if " / " in name)
    assert {r[column] for r in rows if r["Variant"] == "plain"} == {"1.200"}
    assert {r[column] for r in rows if r["Variant"] == "ngram-3"} == {"1.000"}


def test_bounds_of_different_confidence_are_not_combined(tmp_path, before):
    c = campaign()
    later = after(tmp_path, replace(c, analysis=replace(c.analysis, confidence=0.9)))
    html = page_of(before, later)
    assert {r["Change"] for r in Document(html).table("Change")} == {"no bounds"}
    assert "Their bounds hold at different confidence (0.95 against 0.9)" in Document(html).text


def test_bounds_of_a_refined_campaign_are_not_combined_with_those_of_another(tmp_path, before):
    later = Path(after(tmp_path))
    document = json.loads((later / "verdicts.json").read_text())
    document["settings"]["alpha"] = 0.02
    (later / "verdicts.json").write_text(json.dumps(document))
    html = page_of(before, str(later))
    assert {r["Change"] for r in Document(html).table("Change")} == {"no bounds"}
    assert "Their bounds hold at different confidence (0.95 against 0.98)" in Document(html).text


def test_levels_of_request_rate_are_compared_as_such(tmp_path):
    rated = {"concurrency": None, "request_rate": 2.0}
    c = campaign(levels=(4,))
    first = write_results(tmp_path / "before/x", c)
    later = after(tmp_path, c)
    for folder in (first, later):
        file = Path(folder) / "points.parquet"
        points = [{**p, **rated, "errors_by_class": {}} for p in pq.read_table(file).to_pylist()]
        write_parquet(to_table(points, POINTS), file)
    rows = Document(page_of(first, later)).table("Workload", "Level")
    assert {r["Level"] for r in rows} == {"request rate 2"}


def test_what_differs_between_the_campaigns_is_on_the_sheet(tmp_path, before):
    html = page_of(before, after(tmp_path, of_sessions={"engine_version": "b6800"}))
    sheet = {r["What"]: r for r in Document(html).table("What", "before", "after")}
    assert (sheet["Engine"]["before"], sheet["Engine"]["after"]) == (
        "llamacpp b6700",
        "llamacpp b6800",
    )
    assert sheet["Engine"][""] == "differs"
    assert sheet["Work of code"][""] == "same"
    assert sheet["Model file"][""].startswith(MISSING)


# ------------------------------------------------------------------ the page


def test_it_refers_to_nothing_outside_and_may_run_nothing(tmp_path, before):
    html = page_of(before, after(tmp_path))
    elements = Document(html).elements
    [policy] = [
        a["content"]
        for t, a in elements
        if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; style-src")
    assert "script-src" not in policy
    assert "script" not in {t for t, _ in elements}
    for _, attributes in elements:
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "data:").startswith(("data:", "#"))


def test_what_comes_from_outside_is_escaped(tmp_path):
    hostile = "<script>alert(1)</script>"
    c = campaign(("plain", hostile), workloads=(hostile,))
    html = page_of(write_results(tmp_path / "a", c), write_results(tmp_path / "b", c, run="x"))
    assert hostile not in html
    assert hostile in Document(html).text


def test_the_chart_is_described_by_its_finding(tmp_path, before):
    html = page_of(before, after(tmp_path, speed={"ngram-3": 0.8}))
    [label] = [a["aria-label"] for _, a in Document(html).elements if a.get("role") == "img"]
    assert "the speed-up fell at 1" in label


def test_the_same_input_gives_the_same_page(tmp_path, before):
    later = after(tmp_path)
    assert page_of(before, later) == page_of(before, later)


# ------------------------------------------------------------------ folders


def test_folders_are_a_list_or_what_a_shell_would_read(tmp_path, before):
    later = after(tmp_path)
    assert folders_of([before, later]) == folders_of(f"'{before}' {later}") == [before, later]
    assert all(Path(file).is_absolute() for file in files_in([before, later]))


@pytest.mark.parametrize("value", ["", "results/a", "results/a results/a", []])
def test_fewer_than_two_folders_are_refused(value):
    with pytest.raises(CampaignError, match="two or more different folders"):
        folders_of(value)


def test_a_folder_without_results_is_refused(tmp_path, before):
    with pytest.raises(CampaignError, match=re.escape(f"{tmp_path}/points.parquet")):
        folders_of([before, str(tmp_path)])


def test_verdicts_of_another_version_are_refused(tmp_path, before):
    later = Path(after(tmp_path))
    document = json.loads((later / "verdicts.json").read_text())
    (later / "verdicts.json").write_text(json.dumps({**document, "format": 0}))
    with pytest.raises(CampaignError, match="written by another version"):
        read([before, str(later)])


@pytest.mark.parametrize(
    ("folders", "labels"),
    [
        (["results/a", "results/b"], ["a", "b"]),
        (["old/results/x", "new/results/x"], ["old", "new"]),
        (["results/x", "old/results/x"], ["results", "old/results"]),
    ],
)
def test_folders_are_told_apart_by_what_differs_in_their_paths(folders, labels):
    assert apart(folders) == labels


def test_campaigns_of_different_names_are_called_by_them(tmp_path, before):
    other = write_results(tmp_path / "other", replace(campaign(), name="server"), run="x")
    assert [r.label for r in read([before, other])] == ["laptop-ngram", "server"]
