"""The pages that the browser tests open: a usual report, awkward ones, and a comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, Page
from report_fixtures import ALL_FAILED, PROVENANCE, campaign, points, results
from result_folders import write_results

from crossover.campaign import Campaign
from crossover.compare.page import render as render_comparison
from crossover.compare.results import read
from crossover.files import write_json
from crossover.records import write_parquet
from crossover.report.page import render

HOSTILE = "<script>document.title = 'taken over'</script>"
MADE = "2025-10-09 12:00 UTC"


def _invalid_level() -> tuple[Campaign, dict]:
    return campaign(), {
        ("ngram-3", "code", 64, None): {"valid": False, "invalid_reasons": ["queue_limited"]},
        ("plain", "code", 16, 2): {"failed": 3, "errors_by_class": {"http_503": 3}},
    }


REPORTS: dict[str, Callable[[], tuple[Campaign, dict]]] = {
    "usual": lambda: (campaign(), {}),
    "two_workloads": lambda: (
        campaign(("plain", "ngram-3", "ngram-5"), workloads=("chat", "code")),
        {},
    ),
    "one_trial": lambda: (campaign(trials=1), {}),
    "one_level": lambda: (campaign(levels=(4,)), {}),
    "one_variant": lambda: (campaign(("plain",)), {}),
    "all_failed": lambda: (campaign(), {(None,) * 4: ALL_FAILED}),
    "invalid_level": _invalid_level,
    "hostile": lambda: (campaign(("plain", HOSTILE), workloads=(HOSTILE,)), {}),
    "large": lambda: (
        campaign(
            ("plain", *(f"speculation-{i:02d}" for i in range(1, 12))),
            workloads=("agentic", "chat", "code", "translation-of-long-documents"),
        ),
        {},
    ),
}
PAGES = [*REPORTS, "comparison"]
USUAL = ["two_workloads", "comparison"]


def write_page(name: str, folder: Path) -> None:
    """Write page.html and the tables that it was made from."""
    if name == "comparison":
        folders = [
            write_results(folder / "before/laptop", campaign()),
            write_results(folder / "after/laptop", campaign(), run="x", speed={"ngram-3": 1.15}),
        ]
        page = render_comparison(read(folders), generated_at=MADE)
    else:
        c, changes = REPORTS[name]()
        found = results(c, points(c, changes))
        write_parquet(found[0], folder / "points.parquet")
        write_json(found[2], folder / "verdicts.json")
        page = render(*found, campaign=c, provenance=PROVENANCE, generated_at=MADE)
    (folder / "page.html").write_text(page)


class Opened:
    """A page that was opened from disk; what it complains of, and what it asks for, is kept."""

    def __init__(self, context: BrowserContext, file: Path) -> None:
        self.context = context
        self.complaints: list[str] = []
        self.requests: list[str] = []
        context.route(lambda url: not url.startswith(("file:", "data:")), self._refuse)
        self.page: Page = context.new_page()
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(file.as_uri())

    def _refuse(self, route) -> None:
        self.requests.append(route.request.url)
        route.abort()

    def all_drawn(self) -> None:
        """Scroll to each chart that waits for the reader until all are drawn, and back."""
        for _ in range(600):
            waiting = self.page.evaluate(
                """() => {
                  const waiting = [...document.querySelectorAll('figure')].filter(f =>
                    f.checkVisibility() && f.querySelector('script.spec')
                    && !f.querySelector('.live svg'));
                  waiting[0]?.scrollIntoView({block: 'center', behavior: 'instant'});
                  return waiting.length;
                }"""
            )
            self._frame()
            if not waiting:
                self.page.evaluate("scrollTo(0, 0)")
                return
        raise AssertionError(f"{waiting} charts are not drawn")

    def _frame(self) -> None:
        """Have the page draw a frame, which a headless one may stop to do by itself."""
        self.page.screenshot(clip={"x": 0, "y": 0, "width": 1, "height": 1})
        self.page.wait_for_timeout(50)

    def until(self, holds: str, arg: object = None) -> None:
        """Wait until a function of the page is true, asked from here.

        What the page repeats by itself is a string to evaluate, which its policy forbids.
        """
        for _ in range(600):
            if self.page.evaluate(holds, arg):
                return
            self._frame()
        raise AssertionError(f"it never held: {holds}")
