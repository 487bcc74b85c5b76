"""A headless Chromium without a network, and the pages that it opens from disk.

Debian's package `chromium`, driven by Playwright; neither downloads anything. The browser is
ended with each module: Playwright holds the thread's event loop while it runs. Playwright waits
without a limit for a script that a page runs, and a headless page may stop drawing frames: a
browser whose test takes longer than LIMIT_S is killed, which fails the test.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Timer

import pytest
from browser.pages import PAGES, USUAL, Opened, write_page
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = shutil.which("chromium")
LIMIT_S = 120


@pytest.fixture(scope="module")
def running() -> Iterator[Callable[[], Browser]]:
    """The module's Chromium: started when it is first asked for, and again after it was killed."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        started: list[Browser] = []

        def chromium() -> Browser:
            if not started or not started[-1].is_connected():
                started.append(playwright.chromium.launch(executable_path=CHROMIUM))
            return started[-1]

        yield chromium
        for browser in started:
            browser.close()


@contextmanager
def killed_after(limit_s: float, browser: Browser) -> Iterator[Event]:
    """Kill this browser when the block takes longer; the event tells whether it was."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    [pid] = [p["id"] for p in processes if p["type"] == "browser"]
    killed = Event()

    def kill() -> None:
        killed.set()
        os.kill(pid, signal.SIGKILL)

    watchdog = Timer(limit_s, kill)
    watchdog.start()
    try:
        yield killed
    finally:
        watchdog.cancel()


@pytest.fixture
def browser(running: Callable[[], Browser]) -> Iterator[Browser]:
    """A Chromium that does not outlive LIMIT_S of one test."""
    browser = running()
    with killed_after(LIMIT_S, browser) as killed:
        yield browser
    assert not killed.is_set(), f"Chromium was killed: the test took longer than {LIMIT_S} s"


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
