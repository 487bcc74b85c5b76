"""The report in a reader's hands: its numbers, and what can be switched."""

from __future__ import annotations

import re

import pandas as pd
import pytest

COLUMNS = {
    # of the table: (of points.parquet, factor)
    "Throughput, tokens/s": ("output_throughput_tokens_per_s", 1),
    "Decode rate, tokens/s": ("decode_rate_tokens_per_s", 1),
    "TTFT p50, ms": ("ttft_s_p50", 1000),
    "TTFT p99, ms": ("ttft_s_p99", 1000),
    "TPOT p50, ms": ("tpot_s_p50", 1000),
    "TPOT p99, ms": ("tpot_s_p99", 1000),
    "Acceptance length": ("acceptance_length", 1),
}


def table_of(page, name):
    """The table whose caption begins so: rows as dicts of column to text."""
    table = page.get_by_role("table", name=re.compile(f"^{name}"))
    head = table.locator("thead th").all_inner_texts()
    return [
        dict(zip(head, row.locator("th, td").all_inner_texts(), strict=True))
        for row in table.locator("tbody tr").all()
    ]


def shown_as(cell):
    """The number in a cell, and half a unit of its last digit; None: there is none."""
    if cell == "–":
        return None
    decimals = len(cell.partition(".")[2])
    return float(cell.replace(",", "")), 0.5 * 10**-decimals


@pytest.mark.parametrize("name", ["usual", "two_workloads", "invalid_level", "all_failed"])
def test_the_tables_are_the_means_of_the_parquet_file(opened, folder_of, name):
    one = opened(name)
    points = pd.read_parquet(folder_of(name) / "points.parquet")
    for workload, rows in points.groupby("workload"):
        shown = table_of(one.page, f"All levels of {workload}")
        levels = rows.groupby(["concurrency", "variant"])
        assert len(shown) == levels.ngroups
        for row in shown:
            trials = levels.get_group((int(row["Concurrency"]), row["Variant"]))
            valid = trials[trials["valid"]]
            assert row["Valid trials"] == f"{len(valid)} of {len(trials)}"
            assert int(row["Requests"].replace(",", "")) == trials["requests"].sum()
            assert int(row["Failures"].replace(",", "")) == trials["failed"].sum()
            for column, (source, factor) in COLUMNS.items():
                mean = valid[source].mean() * factor
                if pd.isna(mean):
                    assert row[column] == "–", column
                else:
                    value, half = shown_as(row[column])
                    assert value == pytest.approx(mean, abs=half * 1.001), column


def test_the_verdict_is_seen_without_scrolling(opened):
    one = opened("usual", viewport={"width": 1280, "height": 800})
    sentence = one.page.get_by_text("is faster up to concurrency").first
    box = sentence.bounding_box()
    assert box["y"] + box["height"] <= 800


def test_the_theme_can_be_chosen(opened):
    one = opened("usual", color_scheme="light")
    colour = "() => getComputedStyle(document.body).backgroundColor"
    before = one.page.evaluate(colour)
    one.page.get_by_role("button", name="Dark theme").click()
    dark = one.page.evaluate(colour)
    one.page.get_by_role("button", name="Light theme").click()
    assert dark != before
    assert one.page.evaluate(colour) == before


def test_a_point_tells_its_values_under_the_pointer(opened):
    one = opened("usual")
    one.all_drawn()
    speedup = one.page.get_by_role("img", name=re.compile("^Speed-up")).first
    speedup.scroll_into_view_if_needed()
    points = speedup.locator(".live .mark-symbol path")
    points.last.hover()
    tooltip = one.page.locator("#vg-tooltip-element")
    tooltip.wait_for(state="visible")
    assert "ngram-3" in tooltip.inner_text()
    assert "64" in tooltip.inner_text()


def test_commands_can_be_copied(opened):
    one = opened("usual")
    one.context.grant_permissions(["clipboard-read", "clipboard-write"])
    command = one.page.get_by_text("snakemake -c1 --configfile").first
    block = command.locator("xpath=ancestor::*[.//button][1]")
    block.get_by_role("button", name="Copy").click()
    block.get_by_role("button", name="Copied").wait_for()
    assert one.page.evaluate("navigator.clipboard.readText()") == command.inner_text()


def test_a_variant_that_is_switched_off_leaves_every_chart(opened):
    one = opened("two_workloads")
    one.all_drawn()
    switch = one.page.get_by_role("button", name="ngram-5", pressed=True)
    symbols = one.page.locator("figure:not(.why) .live .mark-symbol path:visible")
    before = symbols.count()
    switch.click()
    off = one.page.get_by_role("button", name="ngram-5", pressed=False)
    off.wait_for()
    one.until(
        "n => document.querySelectorAll('figure:not(.why) .live .mark-symbol path').length < n",
        before,
    )
    off.click()
    one.until(
        "n => [...document.querySelectorAll('figure:not(.why) .live .mark-symbol path')]"
        ".filter(e => e.checkVisibility()).length == n",
        before,
    )


def test_a_workload_can_be_looked_at_alone(opened):
    one = opened("two_workloads")
    one.page.get_by_role("combobox", name="Workload").select_option("code")
    assert one.page.get_by_role("heading", name="Workload code").is_visible()
    assert not one.page.get_by_role("heading", name="Workload chat").is_visible()
    one.page.get_by_role("combobox", name="Workload").select_option("all")
    assert one.page.get_by_role("heading", name="Workload chat").is_visible()


def test_the_ratio_of_another_metric_can_be_chosen(opened):
    one = opened("usual")
    metric = one.page.get_by_role("combobox", name="Ratio of")
    names = metric.locator("option").all_inner_texts()
    assert len(names) > 2
    seen = set()
    for name in names[:-1]:
        metric.select_option(name)
        one.all_drawn()
        [label] = [
            chart.get_attribute("aria-label")
            for chart in one.page.locator("figure[data-metric] [role=img]").all()
            if chart.is_visible()
        ]
        seen.add(label)
    assert len(seen) == len(names) - 1
    metric.select_option("all metrics")
    assert one.page.locator("figure[data-metric] [role=img]:visible").count() == len(names) - 1


def test_what_a_verdict_leads_to_does_not_lie_under_the_controls(opened):
    one = opened("large")
    one.page.get_by_role("link", name=re.compile("faster up to")).nth(20).click()
    target, controls = one.page.evaluate(
        """() => [document.getElementById(decodeURIComponent(location.hash.slice(1))),
                  document.querySelector(".controls")]
                 .map(e => e.getBoundingClientRect()).map(({top, bottom}) => [top, bottom])"""
    )
    assert target[0] >= controls[1]
