"""A page that never answers ends with its browser, not with the patience of whoever waits."""

from __future__ import annotations

import pytest
from browser.conftest import killed_after
from playwright.sync_api import Error


def test_a_page_that_never_answers_ends_with_its_browser(running):
    browser = running()
    page = browser.new_page()
    with killed_after(2, browser) as killed, pytest.raises(Error):
        page.evaluate("new Promise(() => {})")
    assert killed.is_set()
    assert running().new_page().evaluate("6 * 7") == 42
