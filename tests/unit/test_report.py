import base64
import csv
import hashlib
import io
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from report_fixtures import (
    ALL_FAILED,
    COLUMN,
    PROVENANCE,
    campaign,
    points,
    requests,
    results,
    sessions,
)

from crossover import reasons, validity
from crossover.axis import CLOSED_LOOP
from crossover.records import POINTS, SESSIONS, to_table
from crossover.report import charts, figures, levels, speedup, theme, wording
from crossover.report.page import render
from crossover.report.wording import MISSING
from crossover.rounds import FIRST_TRIAL


def page(c, found=None, **arguments):
    return render(
        *(found or results(c)),
        campaign=c,
        **{"provenance": PROVENANCE, "generated_at": "2025-10-09 12:00 UTC"} | arguments,
    )


class Document(HTMLParser):
    """What a reader sees: visible text, tables as rows of cells, and the elements with attributes."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.texts, self.tables = [], [], []
        self._silent = self._cell = None
        self.feed(html)
        self.text = re.sub(r"\s+", " ", " ".join(self.texts))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style", "svg"):
            self._silent = self._silent or tag
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self._cell = ""

    def handle_endtag(self, tag):
        if tag == self._silent:
            self._silent = None
        if tag in ("td", "th"):
            self.tables[-1][-1].append(re.sub(r"\s+", " ", self._cell).strip())
            self._cell = None

    def handle_data(self, text):
        if not self._silent:
            self.texts.append(text)
            if self._cell is not None:
                self._cell += text

    def table(self, *columns):
        """The rows, as dicts, of the narrowest table that has these columns."""
        found = min((t for t in self.tables if set(columns) <= set(t[0])), key=lambda t: len(t[0]))
        return [dict(zip(found[0], row, strict=True)) for row in found[1:]]

    def attributes(self, tag, name):
        return [a[name] for t, a in self.elements if t == tag and name in a]


def specs(html):
    """Every chart by the figure that it is in."""
    figures_of = re.findall(r'<figure class="\w+" id="([^"]*)".*?</figure>', html, re.S)
    bodies = re.findall(r"<figure.*?</figure>", html, re.S)
    found = {}
    for name, body in zip(figures_of, bodies, strict=True):
        text = re.search(r'<script type="application/json" class="spec">(.*?)</script>', body, re.S)
        if text:
            found[unescape(name)] = json.loads(unescape(text[1]))
    return found


def rows_of_layers(spec):
    """All different rows of data in a spec, whichever layer they belong to."""
    values = [row for rows in spec["datasets"].values() for row in rows]
    return list({json.dumps(row, sort_keys=True): row for row in values}.values())


EVERY_FIGURE = [
    "speedup-code",
    "speedup-code-decode_rate",
    "speedup-code-ttft",
    "why-code-ngram-3-plain",
    "curve-code",
    "throughput-code",
    "ttft-code",
    "tpot-code",
    "e2e-code",
    "acceptance-code",
    "positions-code",
    "timeline-code",
    "drift",
]
DRAWN_WITHOUT_REQUESTS = [name for name in EVERY_FIGURE if name != "timeline-code"]


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    c = campaign()
    file = requests(c, tmp_path_factory.mktemp("usual"))
    found = results(c, file=file)
    return c, found, page(c, found, requests=file)


# ------------------------------------------------------------------ what it says


def test_the_verdict_stands_before_warnings_charts_and_method(usual):
    _, (_, _, verdicts, _), html = usual
    text = Document(html).text
    verdict = verdicts["verdicts"][0]
    assert verdict["verdict"] == "crossover"
    sentence = re.sub(r"\s+", " ", verdict["sentence"])
    order = [sentence, "Warnings", "Speed-up over plain", "All levels", "Sessions", "Method"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_table_and_charts_show_the_same_numbers(usual):
    _, (_, _, verdicts, _), html = usual
    table = Document(html).table("Concurrency", "Ratio [bounds]", "Validity")
    shown = {(int(r["Concurrency"]), r["Variant"]): r for r in table}
    assert len(shown) == len(table) == 8
    drawn = specs(html)
    ratios = {
        r["level"]: r for r in rows_of_layers(drawn["speedup-code"]) if "lo" in r and "ratio" in r
    }
    for level in verdicts["verdicts"][0]["levels"]:
        row = shown[level["concurrency"], "ngram-3"]
        assert row["Ratio [bounds]"] == wording.ratio(level["ratio"], level["lo"], level["hi"])
        assert ratios[level["concurrency"]]["ratio"] == level["ratio"]
        assert row["Result"] == {"+": "faster", "-": "slower"}[level["label"]]
    means = [r for r in rows_of_layers(drawn["throughput-code"]) if "trial" not in r]
    assert {(r["level"], r["variant"]) for r in means} == set(shown)
    for r in means:
        cell = shown[r["level"], r["variant"]]["Throughput, tokens/s"]
        assert cell == wording.number(r["value"])
    for figure, name in (("ttft-code", "TTFT"), ("tpot-code", "TPOT"), ("e2e-code", "E2E")):
        for r in rows_of_layers(drawn[figure]):
            cells = shown[r["level"], r["variant"]]
            assert cells[f"{name} p50, ms"] == wording.number(r["p50"])
            assert cells[f"{name} p99, ms"] == wording.number(r["p99"])


def test_each_chart_is_described_by_its_finding(usual):
    _, (_, _, verdicts, _), html = usual
    labels = [a["aria-label"] for _, a in Document(html).elements if a.get("role") == "img"]
    assert len(labels) == len(specs(html)) == len(EVERY_FIGURE)
    assert verdicts["verdicts"][0]["sentence"] in labels[0]
    assert any("Highest: plain" in label for label in labels)
    assert all(label.count(".") >= 2 for label in labels)


def test_every_verdict_is_told_on_every_metric_the_campaigns_own_first(usual):
    _, (_, _, verdicts, _), html = usual
    text = Document(html).text
    told = [v["sentence"].replace(" %", "\N{NO-BREAK SPACE}%") for v in verdicts["verdicts"]]
    assert [v["metric"] for v in verdicts["verdicts"]] == [
        "output_throughput",
        "decode_rate",
        "ttft",
    ]
    places = [text.index(re.sub(r"\s+", " ", sentence)) for sentence in told]
    assert places == sorted(places)
    ratios = [name for name in specs(html) if name.startswith("speedup")]
    assert ratios == ["speedup-code", "speedup-code-decode_rate", "speedup-code-ttft"]


def test_each_ratio_chart_has_a_table_of_its_own_numbers(usual):
    _, (_, _, verdicts, _), html = usual
    tables = [t for t in Document(html).tables if "Ratio [bounds]" in t[0] and len(t[0]) == 7]
    for v, table in zip(verdicts["verdicts"], tables, strict=True):
        assert [row[2] for row in table[1:]] == [
            wording.ratio(n["ratio"], n["lo"], n["hi"]) for n in v["levels"]
        ]
        assert [row[4] for row in table[1:]] == [
            wording.in_unit(n["variant_mean"], v["metric"]) for n in v["levels"]
        ]


def test_a_rehearsal_says_so_loudly_and_a_real_run_does_not(usual):
    assert "Rehearsal on the simulated engine" not in usual[2]
    assert "Rehearsal on the simulated engine" in page(campaign(engine="simulated"))


def test_policy_is_shown_as_found(usual):
    _, (_, _, _, policy), html = usual
    text = Document(html).text
    assert [r["variant"] for r in policy["workloads"][0]["runs"]] == ["ngram-3", "plain"]
    assert "Which variant at which load ngram-3 1 to 4 plain 16 to 64" in text
    [switch] = policy["workloads"][0]["switching"]
    assert (
        f"ngram-3: on at {switch['on_at_most']} requests in flight and below, "
        f"off at {switch['off_at_least']} and above"
    ) in text
    assert policy["advice"] in text


def test_sessions_stand_in_order_of_time(usual):
    started = [r["Started, UTC"] for r in Document(usual[2]).table("Started, UTC", "Stopped")]
    assert len(started) == 6
    assert started == sorted(started)


def test_provenance_shows_whatever_is_known(usual):
    text = Document(usual[2]).text
    for expected in ("snakemake -c1 --configfile", "0123abc", "ab" * 32, "llamacpp: b6700"):
        assert expected in text
    assert "Nothing is on record." in Document(page(usual[0], provenance={})).text


def test_every_reason_of_a_point_is_put_in_words():
    assert set(validity.INVALID) | set(validity.WARNINGS) <= set(reasons.CODES)
    assert set(validity.INVALID) <= set(reasons.REMEDIES) <= set(reasons.CODES)


# ------------------------------------------------------------------ what went wrong


def test_an_invalid_point_is_shown_with_its_reason_and_drawn_hollow():
    c = campaign()
    changes = {("ngram-3", "code", 64, 2): {"valid": False, "invalid_reasons": ["queue_limited"]}}
    html = page(c, results(c, points(c, changes)))
    text = Document(html).text
    assert "To do: raise the server's limit of running requests" in text
    assert "requests waited in the server" in text
    assert "concurrency 64 (trial 2)" in text
    [row] = [
        r
        for r in Document(html).table("Concurrency", "Validity")
        if (r["Concurrency"], r["Variant"]) == ("64", "ngram-3")
    ]
    assert row["Valid trials"] == "2 of 3"
    assert row["Validity"].startswith("1 of 3 invalid")
    [hollow] = [r for r in rows_of_layers(specs(html)["speedup-code"]) if r.get("valid") is False]
    assert (hollow["level"], hollow["trial"]) == (64, 2)
    assert "requests waited in the server" in hollow["said"]


def test_rounds_of_refinement_are_told_from_the_trials_that_were_planned():
    c = campaign(trials=2)
    table, *rest = results(c)
    planned = table.to_pylist()
    rounds = [p | {"trial": p["trial"] + FIRST_TRIAL - 1} for p in planned]
    for rows, said in ((planned, "2 trials"), (rounds, "2 of them rounds of refinement")):
        found = to_table([*planned, *rows], POINTS), *rest
        [extent] = re.findall(r"<dt>Extent</dt><dd>(.*?)</dd>", page(c, found))
        assert extent.endswith(said)


def test_what_was_not_measured_is_named():
    c = campaign()
    table = points(c)
    missing = [
        p["variant"] == "ngram-3" and (p["concurrency"], p["trial"]) in {(64, 3), (16, 3), (1, 2)}
        for p in table.to_pylist()
    ]
    found = results(c, table.filter([not m for m in missing]))
    text = Document(page(c, found)).text
    assert (
        "Not measured ngram-3, code, at concurrency 1 (trial 2) and concurrency 16, 64 (trial 3)"
        in text
    )
    assert "Extent 21 of 24 planned points in" in text


def test_a_remark_is_said_once_with_all_its_places():
    c = campaign()
    changes = {(None, None, 16, None): {"warnings": ["prompts_repeated"]}}
    text = Document(page(c, results(c, points(c, changes)))).text
    assert text.count("the prompt set was gone through") == 1
    assert "four times – plain and ngram-3, code, at concurrency 16 (trials 1, 2, 3)" in text


def test_a_server_that_never_became_ready_is_a_warning_and_no_further_engine():
    c = campaign()
    table, lives, *rest = results(c)
    stillborn = lives.to_pylist()[0] | {
        "session_id": "stillborn",
        "engine_version": None,
        "ready_after_s": None,
    }
    text = Document(
        page(c, (table, to_table([*lives.to_pylist(), stillborn], SESSIONS), *rest))
    ).text
    assert "stillborn: the server never became ready, and no point was measured" in text
    assert "Engine llamacpp b6700 Baseline" in text


def test_caveats_of_a_verdict_are_warnings():
    c = campaign()
    found = results(c, caveats=[{"code": "x", "text": "The arms ran a week apart."}])
    assert "ngram-3, code: The arms ran a week apart." in Document(page(c, found)).text


# ------------------------------------------------------------------ little or nothing


def test_one_trial_has_no_interval_and_says_what_to_do():
    c = campaign(trials=1)
    document = Document(page(c))
    assert "set load.trials to 3 or more" in document.text
    assert "There is no band" in document.text
    ratios = [
        r["Ratio [bounds]"]
        for r in document.table("Ratio [bounds]", "Variant")
        if r["Variant"] == "ngram-3"
    ]
    assert len(ratios) == 4
    assert all(re.fullmatch(r"\d\.\d{3}", r) for r in ratios)


def test_one_level_is_drawn_and_no_crossover_is_claimed():
    c = campaign(levels=(4,))
    html = page(c)
    assert "a crossover takes at least two levels" in Document(html).text
    assert list(specs(html)) == DRAWN_WITHOUT_REQUESTS
    assert "Crosses at" not in html


def test_one_variant_has_nothing_to_be_compared_with():
    c = campaign(("plain",))
    document = Document(page(c))
    assert "Only plain was measured" in document.text
    assert "Speed-up" not in document.text
    assert "–" in {r["Ratio [bounds]"] for r in document.table("Ratio [bounds]")}


def test_if_all_requests_failed_no_number_is_invented():
    c = campaign()
    html = page(c, results(c, points(c, {(None,) * 4: ALL_FAILED})))
    document = Document(html)
    assert "not comparable" in document.text
    assert specs(html) == {}
    assert document.text.count("Nothing to draw:") == 8
    for row in document.table("Concurrency", "Validity"):
        assert row["Throughput, tokens/s"] == row["TTFT p50, ms"] == MISSING
        assert row["Acceptance length"] == row["Ratio [bounds]"] == MISSING
        assert row["Valid trials"] == "0 of 3"
        assert row["Failures"] == "78"


def test_no_points_at_all():
    c = campaign()
    document = Document(page(c, results(c, points(c).slice(0, 0))))
    assert (
        "Not measured plain and ngram-3, code, at concurrency 1, 4, 16, 64 (trials 1, 2, 3)"
        in document.text
    )


def test_missing_values_are_dashes_in_the_table_and_absent_from_charts():
    c = campaign()
    changes = {(None,) * 4: {"ttft_s_p99": None, "failed": None, "acceptance_length": None}}
    html = page(c, results(c, points(c, changes)))
    for row in Document(html).table("TTFT p99, ms"):
        assert (row["TTFT p99, ms"], row["Failures"], row["Acceptance length"]) == (MISSING,) * 3
    assert set(DRAWN_WITHOUT_REQUESTS) - set(specs(html)) == {"acceptance-code"}


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_missing_number_is_never_zero(value):
    c = campaign(trials=1, levels=(1,))
    table = points(c, {(None,) * 4: {COLUMN: value}})
    [plain, _] = levels.levels_of(levels.points_of(table, c, None), c)
    assert plain.mean(COLUMN) is None
    assert wording.number(plain.mean(COLUMN)) == MISSING


# ------------------------------------------------------------------ trust


HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize("place", ["variant", "workload", "reason", "class", "provenance"])
def test_what_comes_from_outside_is_escaped(place):
    variants = ("plain", HOSTILE if place == "variant" else "ngram-3")
    workload = HOSTILE if place == "workload" else "code"
    c = campaign(variants, workloads=(workload,))
    changes = {}
    if place == "reason":
        changes = {(None, None, 1, 1): {"valid": False, "invalid_reasons": [HOSTILE]}}
    if place == "class":
        changes = {(None, None, 1, 1): {"failed": 1, "errors_by_class": {HOSTILE: 1}}}
    provenance = {**PROVENANCE, "note": HOSTILE} if place == "provenance" else PROVENANCE
    html = page(c, results(c, points(c, changes)), provenance=provenance)
    assert HOSTILE not in html
    assert HOSTILE in Document(html).text
    assert html.count("</script>") == len(specs(html)) + 3  # the runtime, ours, the charts' looks


def test_terminal_sequences_are_left_out(tmp_path):
    c = campaign(trials=1)
    table = points(c, {(None, None, 1, 1): {"failed": 1, "errors_by_class": {"http_503": 1}}})
    file = requests(c, tmp_path, table)
    html = page(c, results(c, table), requests=file, provenance={"note": "\x1b[1mbold\x1b[0m\x07"})
    assert "\x1b" not in html
    assert "\x07" not in html
    assert "http_503: &lt;b&gt;no&lt;/b&gt;" in html
    assert "Note bold" in Document(html).text


def test_only_the_two_scripts_that_the_policy_names_can_run(usual):
    html = usual[2]
    [policy] = [
        a["content"]
        for t, a in Document(html).elements
        if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    directives = dict(d.strip().split(" ", 1) for d in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert "unsafe" not in directives["script-src"]
    scripts = re.findall(r"<script>(.*?)</script>", html, re.S)
    assert len(scripts) == 2
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    ]
    assert directives["script-src"].split() == hashes


def test_it_refers_to_nothing_outside_itself(usual):
    html = usual[2]
    for _, attributes in Document(html).elements:
        for name in ("src", "href", "xlink:href", "action", "data"):
            assert attributes.get(name, "data:").startswith("data:")
    style = re.search(r"<style>(.*?)</style>", html, re.S)[1]
    assert "url(" not in style
    assert "@import" not in style


def test_it_stays_below_two_megabytes_for_a_large_campaign():
    c = campaign(
        ("plain", "a", "b", "c"), workloads=("chat", "code"), levels=(1, 2, 4, 8, 16, 32, 64, 128)
    )
    assert len(page(c).encode()) < 2 * 2**20


def test_the_same_input_gives_the_same_page_whatever_the_container():
    c = campaign(trials=2)
    table, of_sessions, verdicts, policy = results(c)
    first = page(c, (table, of_sessions, verdicts, policy))
    assert page(c, (table, of_sessions, verdicts, policy)) == first
    as_pandas = (table.to_pandas(), of_sessions.to_pandas(), verdicts, policy)
    assert page(c, as_pandas) == first
    later = page(c, (table, of_sessions, verdicts, policy), generated_at="2026-01-01 00:00 UTC")
    lines = zip(first.splitlines(), later.splitlines(), strict=True)
    [(made, made_later)] = [(a, b) for a, b in lines if a != b]
    assert made_later.replace("2026-01-01 00:00 UTC", "2025-10-09 12:00 UTC") == made


def test_points_can_be_taken_from_the_page_as_csv(usual):
    _, (table, _, _, _), html = usual
    [uri] = [u for u in Document(html).attributes("a", "href") if u.startswith("data:text/csv")]
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(uri.split(",")[1]).decode())))
    assert [float(r[COLUMN]) for r in rows] == table[COLUMN].to_pylist()
    assert {r["gpu_energy_j"] for r in rows} == {""}


# ------------------------------------------------------------------ looks


def _luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    """WCAG 2 contrast ratio."""
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_from_their_background(mode):
    colours = {name: tones[mode] for name, tones in theme.PAGE_COLOURS.items()}
    for tones in theme.SERIES_COLOURS.values():
        assert contrast(tones[mode], colours["page"]) >= 3
    for text in ("ink", "soft", "link", "good", "bad", "unsure", "loud"):
        assert contrast(colours[text], colours["page"]) >= 4.5
    for text in ("ink", "soft"):
        assert contrast(colours[text], colours["panel"]) >= 4.5
    for text in ("ink", "loud"):
        assert contrast(colours[text], colours["loud-panel"]) >= 4.5


def test_a_variant_looks_the_same_in_every_chart_and_unlike_any_other():
    names = [f"v{i}" for i in range(20)]
    looks = theme.looks(names, "v0")
    assert len({(k.colour, k.shape, k.dash) for k in looks.values()}) == len(names)
    assert theme.looks(names[:3], "v0") == {name: looks[name] for name in names[:3]}


def test_lines_only_join_measured_levels():
    c = campaign()
    found = levels.levels_of(levels.points_of(points(c), c, None), c)
    figure = figures.throughput("code", found, CLOSED_LOOP)
    spec = charts.draw(figure, theme.looks(c.variants, c.baseline))
    [line] = [layer["mark"] for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    assert line.get("interpolate", "linear") == "linear"
    [x] = {json.dumps(layer["encoding"]["x"], sort_keys=True) for layer in spec["layer"]}
    assert json.loads(x)["scale"]["type"] == "log"
    assert json.loads(x)["scale"]["base"] == 2
    assert json.loads(x)["axis"]["values"] == list(c.load.concurrency)


def test_the_ratio_axis_holds_one_even_if_every_ratio_is_far_from_it():
    c = campaign()
    table, _, verdicts, _ = results(c)
    for level in verdicts["verdicts"][0]["levels"]:
        level |= {"ratio": 3.0, "lo": 2.9, "hi": 3.1}
    found = levels.levels_of(levels.points_of(table, c, None), c)
    judged = levels.verdicts_of(verdicts)[:1]
    figure = speedup.speedup("code", "plain", judged, found, c, CLOSED_LOOP)
    figure = replace(figure, trials=[])
    spec = charts.draw(figure, theme.looks(c.variants, c.baseline))
    low, high = spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low < 1 < high


def test_sessions_that_were_started_alike_are_described_once(usual):
    c = usual[0]
    assert sessions(c).num_rows == 6
    [told] = re.findall(r"How they were started</h3>(.*?)</section>", usual[2], re.S)
    assert told.count("<summary>") == 2  # one a variant
