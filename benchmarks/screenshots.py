"""Reference pictures of a report, light and dark, as the README shows them, and narrow and on paper.

    .venv/bin/python benchmarks/screenshots.py [REPORT [FOLDER]]

Writes report-{light,dark}.png, the top of the page; with --all also phone.png, whole-{light,dark}.png
and paper.pdf. Prints when the verdict was to be seen. Needs Chromium (Debian's package `chromium`).
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

TOP = {"width": 960, "height": 1880}
PHONE = {"width": 400, "height": 1200}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", nargs="?", default="reports/crossover.html", type=Path)
    parser.add_argument("folder", nargs="?", default="docs/images", type=Path)
    parser.add_argument("--all", action="store_true", help="more than the README shows")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if (chromium := shutil.which("chromium")) is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        pictures(browser, arguments.report, arguments.folder, everything=arguments.all)
        browser.close()


def pictures(browser: Browser, report: Path, folder: Path, *, everything: bool) -> None:
    for scheme in ("light", "dark"):
        page = opened(browser, report, scheme, TOP)
        take(page, folder / f"report-{scheme}.png")
        if everything:
            draw_all(page)
            take(page, folder / f"whole-{scheme}.png", full_page=True)
    if everything:
        page = opened(browser, report, "light", PHONE)
        draw_all(page)
        take(page, folder / "phone.png", full_page=True)
        page.pdf(path=folder / "paper.pdf", prefer_css_page_size=True)
        print(folder / "paper.pdf")


def opened(browser: Browser, report: Path, scheme: str, size: dict[str, int]) -> Page:
    page = browser.new_context(offline=True, color_scheme=scheme, viewport=size).new_page()
    began = time.perf_counter()
    page.goto(report.resolve().as_uri(), wait_until="commit")
    page.get_by_role("heading", name="Verdict").first.wait_for()
    print(f"verdict after {time.perf_counter() - began:.2f} s ({scheme}, {size['width']} px)")
    page.wait_for_load_state()
    page.wait_for_timeout(1500)  # charts that are on the screen
    return page


def draw_all(page: Page) -> None:
    """Look at every figure once: a chart is drawn when it comes near the screen."""
    for figure in page.locator("figure:visible").all():
        figure.scroll_into_view_if_needed()
        page.wait_for_timeout(300)
    page.evaluate("scrollTo(0, 0)")


def take(page: Page, path: Path, *, full_page: bool = False) -> None:
    page.screenshot(path=path, full_page=full_page)
    print(path)


if __name__ == "__main__":
    main()
