"""The parts of the report that stand on their own: course of a point, failures, parity, policy."""

import base64
import gzip
import json
from dataclasses import replace

import altair as alt
import numpy as np
import pyarrow as pa
import pytest
from report_fixtures import (
    COLUMN,
    LEVELS,
    PROVENANCE,
    campaign,
    points,
    requests,
    results,
    sessions,
)

from crossover.axis import CLOSED_LOOP, OPEN_LOOP
from crossover.campaign import Arrivals, Refine, Slo, WhatIf
from crossover.records import REQUESTS, to_table, write_parquet
from crossover.report import (
    appendix,
    between,
    charts,
    curve_labels,
    failures,
    levels,
    theme,
    timeline,
    view,
    wording,
)
from crossover.report.figure import Figure
from crossover.report.parity_sheet import sheet_of
from crossover.report.recommendation import recommend


def prepared(c, found=None, file=None):
    return view.prepare(
        *(found or results(c, file=file)),
        campaign=c,
        provenance=PROVENANCE,
        generated_at="2025-10-09 12:00 UTC",
        requests=file,
    )


# ------------------------------------------------------------------ the course of a point


def request(sent_s, first_s, last_s, tokens, **changes):
    return {
        "variant": "plain",
        "workload": "code",
        "trial": 1,
        "concurrency": 1,
        "status": "ok",
        "sent_s": sent_s,
        "first_token_s": first_s,
        "last_token_s": last_s,
        "output_tokens": tokens,
        "chunks": tokens,
        "first_chunk_tokens": 1,
        **changes,
    }


def series_of(tmp_path, *rows, **changes):
    c = campaign(("plain",), levels=(1,), trials=1)
    place = {"started_s": 100.0, "load_s": 10.0, "window_start_s": 102.0, "window_s": 6.0}
    table = points(c, {(None,) * 4: place | changes})
    write_parquet(to_table(rows, REQUESTS), tmp_path / "requests.parquet")
    read = timeline.read_series(
        tmp_path / "requests.parquet", levels.points_of(table, c, None), CLOSED_LOOP
    )
    return read.get(("plain", "code", 1, 1))


def test_tokens_are_spread_between_a_requests_first_and_last(tmp_path):
    series = series_of(tmp_path, request(100.0, 101.0, 105.0, 41), request(104.0, 104.5, 106.5, 21))
    assert series.bin_s == 1.0
    assert series.window == (2.0, 8.0)
    expected = [0, 1 + 10, 10, 10, 10 + 1 + 5, 10, 5, 0, 0, 0]
    assert series.tokens_per_s == pytest.approx(expected)


def test_all_tokens_arrive_however_the_bins_lie(tmp_path):
    rng = np.random.default_rng(3)
    first = 100 + 9 * rng.random(500)
    last = np.minimum(first + rng.random(500), 109.99)
    series = series_of(
        tmp_path, *(request(100.0, f, t, 30) for f, t in zip(first, last, strict=True))
    )
    assert series.tokens_per_s.sum() * series.bin_s == pytest.approx(500 * 30)


def test_a_failed_request_gives_no_tokens_and_a_cancelled_one_those_of_its_chunks(tmp_path):
    series = series_of(
        tmp_path,
        request(100.0, 101.0, 102.0, 40, status="failed"),
        request(100.0, 103.0, 105.0, None, status="cancelled", chunks=11, first_chunk_tokens=1),
        tokens_per_chunk=2.0,
    )
    assert series.tokens_per_s == pytest.approx([0, 0, 0, 1 + 10.5, 10.5, 0, 0, 0, 0, 0])


def test_without_the_times_of_a_point_nothing_is_drawn(tmp_path):
    assert series_of(tmp_path, request(100.0, 101.0, 102.0, 40), started_s=None) is None
    assert series_of(tmp_path, request(100.0, None, None, 40)) is None


def test_a_long_point_has_wider_bins(tmp_path):
    series = series_of(tmp_path, request(100.0, 101.0, 102.0, 40), load_s=400.0)
    assert len(series.tokens_per_s) <= timeline.BINS_A_POINT
    assert series.bin_s == 5


def test_at_first_the_level_nearest_to_the_crossing_is_shown_with_all_its_variants(tmp_path):
    c = campaign()
    file = requests(c, tmp_path)
    [workload] = prepared(c, file=file).workloads
    figure = next(f for f in workload.figures if f.kind == "timeline")
    assert figure.choice.first == "16/1"  # C* is 10.9: in ln nearer to 16 than to 4
    assert len(figure.choice.options) == 12
    shown = [r["variant"] for r in figure.means if r["key"] == "16/1"]
    assert shown == ["plain", "ngram-3"]
    assert "in the window" in figure.finding


def test_too_many_points_are_thinned_alike_each_time_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline, "BINS_A_WORKLOAD", 700)
    c = campaign()
    file = requests(c, tmp_path)
    first, second = (
        next(f for f in prepared(c, file=file).workloads[0].figures if f.kind == "timeline")
        for _ in range(2)
    )
    assert first == second
    assert 1 < len(first.choice.options) < 12
    assert f"{len(first.choice.options)} of 12 level-and-trial pairs" in first.note


# ------------------------------------------------------------------ failures


def failures_of(c, table, messages=None):
    return failures.failures(levels.points_of(table, c, None), messages or {}, CLOSED_LOOP)


def test_failed_requests_are_counted_by_class_with_their_first_message(tmp_path):
    c = campaign(trials=1)
    changes = {("plain", "code", 16, None): {"failed": 3, "errors_by_class": {"http_503": 2}}}
    table = points(c, changes)
    messages = failures.first_messages(requests(c, tmp_path, table))
    found = failures_of(c, table, messages)
    assert [(row[3], row[4], row[5]) for row in found.table.rows] == [
        ("class not recorded", "1", "116"),
        ("http_503", "2", "116"),
    ]
    assert found.table.rows[1][6].endswith(": <b>no</b>")
    assert found.summary.startswith("3 of ")


def test_failures_that_nobody_counted_are_unknown_and_not_none():
    c = campaign()
    nobody = failures_of(c, points(c, {(None,) * 4: {"failed": None, "errors_by_class": None}}))
    assert nobody.summary == (
        "How many requests failed is not known of any point: the results do not say."
    )
    some = failures_of(c, points(c, {("plain", None, 1, None): {"failed": None}}))
    assert some.summary.startswith("None of ")
    assert "not known of 3 points" in some.summary
    assert failures_of(c, points(c)).summary == "None of 3,540 requests failed."


# ------------------------------------------------------------------ parity


def test_differences_stand_before_what_is_unknown_and_what_is_the_same():
    c = campaign()
    _, _, verdicts, _ = results(c)
    [verdict, *_] = levels.verdicts_of(verdicts)
    verdict["parity"]["sheet"] = [
        {"what": what, "baseline": a, "variant": b, "known": known, "effect": effect}
        for what, a, b, known, effect in (
            ("engine", "llamacpp", "llamacpp", True, "same"),
            ("kv_tokens", None, 4096, False, "unknown"),
            ("--spec-type", None, "ngram", True, "speculation"),
            ("prefix_cache", False, True, True, "caveat"),
        )
    ]
    sheet = sheet_of(verdict, c)
    assert [row[0] for row in sheet.notable.rows] == ["prefix cache", "KV tokens"]
    assert sheet.notable.rows[0][1:3] == ["no", "yes"]
    assert [row[:3] for row in sheet.expected.rows] == [["--spec-type", wording.MISSING, "ngram"]]
    assert sheet.notable.rows[1][1:3] == ["unknown", "4096"]
    assert [row[0] for row in sheet.same.rows] == ["engine"]
    assert "Known of one arm at most: KV tokens." in sheet.summary
    assert "Of 3 facts known of both arms, 1 differs" in sheet.summary


# ------------------------------------------------------------------ why, and what to run


def test_the_step_cost_is_drawn_and_tabled_as_it_was_found():
    c = campaign()
    _, _, verdicts, _ = found = results(c)
    broken_even = verdicts["verdicts"][0]["break_even"]
    [why] = prepared(c, found).workloads[0].why
    assert [(r["level"], r["yields"], r["cost"]) for r in why.figure.means] == [
        (n["concurrency"], n["tokens_per_step"], n["step_cost"]) for n in broken_even["levels"]
    ]
    assert [row[3] for row in why.table.rows] == ["yes", "yes", "no", "no"]
    assert [row[4][0] for row in why.table.rows] == ["≤", "≤", "≥", "≥"]
    both_ends_and_the_change = [0, 2, 3]
    assert why.sentences == [
        broken_even["sentences"][i] for i in (*both_ends_and_the_change, len(LEVELS))
    ]
    assert "The two meet at concurrency 10.9." in why.figure.finding


def test_levels_too_close_to_be_told_apart_are_labelled_at_the_ends_only_where_there_is_room():
    rows = [{"variant": "a", "level": n, "rate": 100 + n / 100, "value": 500.0} for n in range(9)]
    apart = {"variant": "b", "level": 4, "rate": 200.0, "value": 1000.0}
    figure = Figure(
        "curve", "", "", "", "", CLOSED_LOOP, ["a", "b"], list(range(9)), means=[*rows, apart]
    )
    labelled = [
        (r["variant"], r["level"], offset)
        for offset, those in curve_labels.labels(figure).items()
        for r in those
    ]
    of_a = {level: offset for variant, level, offset in labelled if variant == "a"}
    assert {0, 8} <= of_a.keys()
    assert len(set(of_a.values())) == len(of_a) <= 4
    assert [level for variant, level, _ in labelled if variant == "b"] == [4]


def test_a_prediction_is_called_one():
    c = campaign(("plain", "ngram-3"), what_if=WhatIf((1.2,)))
    _, _, verdicts, _ = found = results(c)
    verdicts["verdicts"][0]["break_even"]["what_if"] = [
        {
            "acceptance_length": 1.2,
            "bound": "at_least",
            "levels": [{"concurrency": 1, "ratio": 1.1, "lo": 1.0, "hi": 1.2, "label": "+"}],
        }
    ]
    [why] = prepared(c, found).workloads[0].why
    assert why.predictions.caption.startswith("Prediction, not measured")
    assert why.predictions.rows == [["1.2", "1", "≥ 1.100 [1.000–1.200]", "faster"]]


def test_the_policy_tells_the_gain_and_the_engines_own_terms():
    c = campaign(load_shares={1: 0.5, 64: 0.5})
    _, _, _, policy = results(c)
    gain = policy["workloads"][0]["expected_gain"]
    policy["workloads"][0]["own_terms"] = {"engine": "vllm", "settings": {"a": [1, 2]}}
    found = recommend(policy, "code", c, CLOSED_LOOP)
    [told] = [s for s in found.statements if s.startswith("For a load of")]
    assert "50 % at 1, 50 % at 64" in told
    assert wording.percent(gain["gain"]) in told
    assert json.loads(found.own_terms[1]) == {"a": [1, 2]}
    assert recommend({"workloads": []}, "code", c, CLOSED_LOOP) is None


# ------------------------------------------------------------------ the axis


def test_a_request_rate_is_called_so_everywhere():
    c = campaign()
    rates = tuple(n / 4 for n in c.load.concurrency)
    table = points(c)
    of_rows = pa.array([n / 4 for n in table["concurrency"].to_pylist()], pa.float64())
    for name, values in (
        ("request_rate", of_rows),
        ("concurrency", pa.nulls(table.num_rows, pa.int32())),
    ):
        table = table.set_column(table.schema.get_field_index(name), name, values)
    open_loop = replace(c, load=replace(c.load, concurrency=(), arrivals=Arrivals(rates)))
    found = prepared(open_loop, results(open_loop, table))
    [workload] = found.workloads
    assert workload.ratios[0].axis is OPEN_LOOP
    assert workload.ratios[0].levels == [0.25, 1, 4, 16]
    assert workload.table.columns[0] == "Request rate"
    assert workload.table.rows[0][0] == "0.25"
    assert ("Faster at", "0.25, 1 requests/s") in found.cards[0].facts
    [threshold] = workload.recommendation.statements
    assert "requests/s and below" in threshold
    assert not any(
        "in flight" in note for note in [threshold, *dict(found.cards[0].facts).values()]
    )
    spec = charts.draw(workload.ratios[0], theme.looks(c.variants, c.baseline))
    titles = {layer["encoding"].get("x", {}).get("title") for layer in spec["layer"]}
    assert titles == {"request rate (requests/s)", None}
    assert any(paragraph.startswith("Open loop") for paragraph in found.method)


# ------------------------------------------------------------------ method, sessions, downloads


@pytest.mark.parametrize(("rounds", "said"), [(0, False), (2, True)])
def test_the_method_tells_of_long_windows_where_refinement_may_measure_them(rounds, said):
    paragraphs = appendix.method(replace(campaign(), refine=Refine(rounds=rounds)), [])
    assert any("in windows of at least 240 s" in text for text in paragraphs) == said


def test_a_sentence_names_its_metric_where_that_is_not_the_campaigns():
    found = prepared(campaign(metric="decode_rate"))
    [(title, [card])] = [(t, c) for t, c in found.other_cards if t == "Output throughput"]
    assert card.sentence.startswith(f"{title}: ngram-3 is faster up to")
    assert prepared(campaign()).cards[0].sentence.startswith("ngram-3 is faster up to")


def test_the_method_says_where_time_stamps_come_from():
    c = campaign()
    rows = levels.points_of(points(c), c, None)
    told = " ".join(appendix.method(c, rows))
    assert "the kernel's receive stamps" in told
    rows[0]["stamp_source"] = "user"
    rows[1]["stamp_source"] = None
    mixed = " ".join(appendix.method(c, rows))
    assert "(22 points)" in mixed
    assert "the load client's" in mixed
    assert "of 1 point it is not on record" in mixed
    with_slo = campaign(slo=Slo(ttft_s=0.5))
    assert "TTFT ≤ 500 ms" in " ".join(appendix.method(with_slo, rows))


def test_a_session_lies_where_its_points_lie_from_their_variants_mean():
    c = campaign(("plain",), trials=2)
    table = points(
        c, {(None, None, None, 1): {COLUMN: 110.0}, (None, None, None, 2): {COLUMN: 90.0}}
    )
    drift = prepared(c, results(c, table)).drift
    mean = (110.0 * 90.0) ** 0.5
    assert [r["value"] for r in drift.means] == pytest.approx(
        [100 * (110 / mean - 1), 100 * (90 / mean - 1)]
    )
    assert drift.finding.startswith("No change with time can be told")


def test_a_session_without_a_start_time_is_listed_and_not_drawn():
    c = campaign()
    table, of_sessions, verdicts, policy = results(c)
    blank = of_sessions.set_column(
        of_sessions.schema.get_field_index("started_at"),
        "started_at",
        pa.nulls(of_sessions.num_rows, pa.float64()),
    )
    found = prepared(c, (table, blank, verdicts, policy))
    assert found.drift.means == []
    assert len(found.sessions.rows) == sessions(c).num_rows


def test_a_large_download_is_compressed_and_the_same_each_time(monkeypatch):
    monkeypatch.setattr(appendix, "PLAIN_BYTES", 10_000)
    c = campaign()
    table, _, verdicts, policy = results(c)
    rows = levels.points_of(table, c, None)
    first, second = (appendix.downloads(rows, verdicts, policy, {}, c) for _ in range(2))
    assert first == second
    [csv] = [d for d in first if "points" in d.name]
    assert csv.name == "laptop-ngram-points.csv.gz"
    text = gzip.decompress(base64.b64decode(csv.uri.split(",")[1])).decode()
    assert text.count("\n") == 1 + table.num_rows


# ------------------------------------------------------------------ drawings and words


def test_every_drawing_obeys_the_schema_of_vega_lite(tmp_path):
    c = campaign()
    file = requests(c, tmp_path)
    looks = theme.looks(c.variants, c.baseline)
    drawn = [charts.draw(figure, looks) for figure in prepared(c, file=file).figures]
    assert len(drawn) == 13
    for spec in drawn:
        alt.LayerChart.from_dict(spec, validate=True)


def test_every_series_of_a_variant_follows_its_switch(tmp_path):
    c = campaign()
    looks = theme.looks(c.variants, c.baseline)
    for figure in prepared(c, file=requests(c, tmp_path)).figures:
        spec = charts.draw(figure, looks)
        for layer in spec["layer"]:
            name = layer.get("data", spec.get("data"))["name"]
            if "variant" in spec["datasets"][name][0]:
                filters = [t.get("filter") for t in layer.get("transform", [])]
                filters += [t.get("filter") for t in spec.get("transform", [])]
                assert "indexof(off, datum.variant) < 0" in filters


def test_line_and_band_pass_one_where_the_verdict_says():
    figure = prepared(campaign()).workloads[0].ratios[0]
    spec = charts.draw(figure, theme.looks(["plain", "ngram-3"], "plain"))
    line, area = (
        spec["datasets"][layer["data"]["name"]]
        for kind in ("line", "area")
        for layer in spec["layer"]
        if layer["mark"]["type"] == kind
    )
    [crossing] = figure.crossings

    def at_one(rows, column):
        return [r["level"] for r in rows if r[column] == 1.0]

    assert at_one(line, "ratio") == [crossing["c_star"]]
    assert at_one(area, "lo") == [crossing["lo"]]
    assert at_one(area, "hi") == [crossing["hi"]]
    for rows, columns in ((line, ["ratio"]), (area, ["lo", "hi"])):
        drawn = {r["level"]: r for r in rows}
        for m in figure.means:
            assert {c: drawn[m["level"]][c] for c in columns} == {c: m[c] for c in columns}


def test_a_variant_without_bounds_has_no_band_beside_one_that_has():
    figure = prepared(campaign()).workloads[0].ratios[0]
    single = [{**m, "variant": "single-trial", "lo": None, "hi": None} for m in figure.means]
    both = replace(
        figure, variants=[*figure.variants, "single-trial"], means=[*figure.means, *single]
    )
    assert {row["variant"] for row in between.band(both)} == {"ngram-3"}


def test_crossings_are_labelled_only_where_the_labels_have_room():
    figure = prepared(campaign()).workloads[0].ratios[0]
    crowded = replace(figure, crossings=figure.crossings * 3)
    looks = theme.looks(["plain", "ngram-3"], "plain")
    plain, many = (charts.draw(f, looks) for f in (figure, crowded))
    texts = [
        [layer for layer in spec["layer"] if layer["mark"]["type"] == "text"]
        for spec in (plain, many)
    ]
    assert len(texts[0]) == len(texts[1]) + 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("a\x00b\x08c\x9bd", "abcd"),
        ("kept\n\tas it is – é", "kept\n\tas it is – é"),
    ],
)
def test_only_what_can_be_printed_is_shown(text, expected):
    assert wording.printable(text) == expected
