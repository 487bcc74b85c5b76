"""Every page, whatever it is about: from disk, offline, in both themes, narrow, on paper, by keyboard."""

from __future__ import annotations

import re
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import CHROMIUM
from browser.pages import HOSTILE

PHONE = {"width": 400, "height": 800}
PAPER = {"width": 700, "height": 1000}
AXE = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}

CONTRASTS = """() => {
  const light = c => {
    const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => {
      v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  const contrast = c => { const [a, b] = [light(c), page].sort((x, y) => y - x);
                          return (a + 0.05) / (b + 0.05); };
  const shown = [...document.querySelectorAll('figure svg text')].filter(t => t.checkVisibility());
  return [page, contrast(getComputedStyle(document.body).color),
          ...shown.map(t => contrast(getComputedStyle(t).fill))];
}"""


def charts_of(one):
    """What a screen reader is told is one image each."""
    return one.page.get_by_role("img", name=re.compile(".")).all()


def test_it_opens_from_disk_without_a_network_and_draws_its_charts(opened, any_page):
    one = opened(any_page)
    one.all_drawn()
    charts = charts_of(one)
    for chart in charts:
        if chart.is_visible():
            assert chart.locator("svg:visible").count() == 1
    assert one.page.get_by_role("heading", level=1).is_visible()
    assert bool(charts) is (any_page != "all_failed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_the_theme_of_the_system(opened, usual_page, scheme):
    one = opened(usual_page, color_scheme=scheme)
    one.all_drawn()
    background, *contrasts = one.page.evaluate(CONTRASTS)
    assert (background > 0.5) is (scheme == "light")
    assert min(contrasts) >= 4.5


def test_a_phone_needs_no_scrolling_sideways(opened, any_page):
    one = opened(any_page, viewport=PHONE)
    one.all_drawn()
    assert one.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_accessibility_checker_finds_nothing_serious(opened, any_page):
    one = opened(any_page)
    one.all_drawn()
    found = Axe().run(one.page, options=AXE).response["violations"]
    serious = [
        (v["id"], v["help"], [node["html"][:200] for node in v["nodes"]][:5])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_it_is_complete_without_scripts(opened, usual_page):
    one = opened(usual_page, java_script_enabled=False)
    for chart in charts_of(one):
        assert chart.locator("svg:visible").count() == 1
    for useless in one.page.get_by_role("button").all():
        assert not useless.is_visible()


def test_paper_is_light_and_has_every_chart_and_no_button(opened, usual_page):
    one = opened(usual_page, color_scheme="dark", viewport=PAPER)
    one.all_drawn()
    one.page.emulate_media(media="print", color_scheme="dark")
    background, *contrasts = one.page.evaluate(CONTRASTS)
    assert background > 0.9
    assert min(contrasts) >= 4.5
    for chart in charts_of(one):
        if chart.locator("xpath=ancestor::details[not(@open)]").count() == 0:
            assert chart.locator("svg:visible").count() == 1
    assert one.page.locator("button:visible").count() == 0
    assert one.page.evaluate("document.documentElement.scrollWidth") <= PAPER["width"]


def test_it_prints_to_a_file(folder_of, usual_page, tmp_path):
    """By Chromium's own command, which can be given a time limit."""
    page, paper = folder_of(usual_page) / "page.html", tmp_path / "paper.pdf"
    command = [CHROMIUM or pytest.skip("there is no Chromium"), "--headless", "--no-sandbox"]
    command += [
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--print-to-pdf={paper}",
    ]
    subprocess.run([*command, page.as_uri()], check=True, capture_output=True, timeout=120)
    content = paper.read_bytes()
    assert content.startswith(b"%PDF-")
    assert re.search(rb"/Type\s*/Page\b", content)


def test_the_keyboard_reaches_every_control_and_shows_where_it_is(opened, usual_page):
    one = opened(usual_page)
    reachable = one.page.evaluate(
        """() => [...document.querySelectorAll('button, select, summary, a[href], [tabindex="0"]')]
                 .filter(e => e.checkVisibility()).length"""
    )
    reached = 0
    for _ in range(reachable):
        one.page.keyboard.press("Tab")
        state = one.page.evaluate(
            """() => { const e = document.activeElement, s = getComputedStyle(e);
                       return [e !== document.body, s.outlineStyle, parseFloat(s.outlineWidth)] }"""
        )
        assert state[0]
        assert state[1] != "none"
        assert state[2] >= 1
        reached += 1
    assert reached == reachable
    one.page.keyboard.press("Tab")
    assert one.page.evaluate("document.activeElement === document.body"), "Tab goes round in order"


def test_its_policy_forbids_every_request_and_every_script_from_outside(opened, usual_page):
    one = opened(usual_page)
    policy = one.page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    assert policy.startswith("default-src 'none';")
    one.page.evaluate(
        """() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';
                   document.body.append(s); const i = new Image(); i.src = 'http://localhost/x';
                   document.body.append(i); }"""
    )
    refused = one.page.evaluate("() => fetch('http://localhost/x').then(() => false, () => true)")
    assert refused
    assert one.page.evaluate("window.ran") is None
    assert one.requests == [], "refused by the page itself, before they left"
    assert all("Content Security Policy" in said for said in one.complaints)
    assert len(one.complaints) >= 3
    one.complaints.clear()


def test_a_name_that_is_a_script_is_shown_and_does_not_run(opened):
    one = opened("hostile")
    one.all_drawn()
    assert HOSTILE in one.page.locator("body").inner_text()
    assert one.page.title() != "taken over"
