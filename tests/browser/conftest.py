"""A headless Chromium without a network, and the pages that it opens from disk.

Debian's package `chromium`, driven by Playwright; neither downloads anything. The browser is
ended with each module: Playwright holds the thread's event loop while it runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser.pages import PAGES, USUAL, Opened, write_page
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, once a module."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder with a page of `pages.PAGES`, page.html, and what it was made from; made once."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            write_page(name, made[name])
        return made[name]

    return folder


@pytest.fixture
def opened(browser: Browser, folder_of: Callable[[str], Path]) -> Iterator[Callable[..., Opened]]:
    """Open a page; whatever it complained of or asked of a network fails the test at its end."""
    all_opened: list[Opened] = []

    def opened(name: str, **options: object) -> Opened:
        one = Opened(browser.new_context(offline=True, **options), folder_of(name) / "page.html")
        all_opened.append(one)
        return one

    yield opened
    for one in all_opened:
        one.context.close()
        assert one.complaints == []
        assert one.requests == []


@pytest.fixture(params=PAGES)
def any_page(request: pytest.FixtureRequest) -> str:
    """The name of each page in turn."""
    return request.param


@pytest.fixture(params=USUAL)
def usual_page(request: pytest.FixtureRequest) -> str:
    """The name of each page that has all that a page can have, in turn."""
    return request.param
