"""How long a report takes to make from a million requests, and to show its first verdict.

    .venv/bin/python benchmarks/report.py [REQUESTS]

The results are made up: what is timed is the reading, the drawing and the opening. The first
verdict counts as visible when the browser has painted and the sentence lies on the screen. Needs
Chromium (Debian's package `chromium`), driven with Playwright.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests" / "unit")]

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import report_fixtures as fixtures
from playwright.sync_api import sync_playwright

from crossover.campaign import Slo
from crossover.records import REQUESTS, arrow_schema
from crossover.report.page import render

PAINTED = """
() => new Promise((resolve) => {
  const seen = (entries) => {
    const first = entries.find((e) => e.name === "first-contentful-paint");
    if (first) resolve(first.startTime / 1000);
  };
  new PerformanceObserver((list) => seen(list.getEntries())).observe({ type: "paint", buffered: true });
})
"""
ON_SCREEN = """
() => {
  const place = document.querySelector(".card .lead").getBoundingClientRect();
  return place.top >= 0 && place.bottom <= innerHeight;
}
"""


def write_requests(points: pa.Table, rows: int, path: Path) -> int:
    """About `rows` requests in equal parts, a row group a point, as the workflow writes them."""
    schema = arrow_schema(REQUESTS)
    each = rows // points.num_rows
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for point in points.to_pylist():
            sent_s = point["started_s"] + np.linspace(0, point["load_s"] - 2, each)
            known = {
                "request_id": np.arange(each, dtype=np.int32),
                "sent_s": sent_s,
                "first_token_s": sent_s + 0.1,
                "last_token_s": sent_s + 1.9,
                "end_s": sent_s + 1.9,
                "status": ["ok"] * each,
                **{n: np.full(each, 48, dtype=np.int32) for n in ("output_tokens", "chunks")},
                "first_chunk_tokens": np.ones(each, dtype=np.int32),
            }
            columns = []
            for field in schema:
                if field.name in known:
                    columns.append(pa.array(known[field.name], field.type))
                elif field.name in point:
                    columns.append(pa.array([point[field.name]] * each, field.type))
                else:
                    columns.append(pa.nulls(each, field.type))
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    return each * points.num_rows


def seconds_to_verdict(report: Path) -> tuple[float, bool]:
    """(opening to first paint, whether the verdict's sentence is on the screen then)."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_context(offline=True).new_page()
        page.goto(report.as_uri(), wait_until="commit")
        painted_s = page.evaluate(PAINTED)
        on_screen = page.evaluate(ON_SCREEN)
        browser.close()
    return painted_s, on_screen


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    campaign = fixtures.campaign(slo=Slo(ttft_s=1.0))
    points, sessions, verdicts, policy = fixtures.results(campaign)
    with tempfile.TemporaryDirectory() as folder:
        requests = Path(folder) / "requests.parquet"
        rows = write_requests(points, wanted, requests)
        began, busy = time.monotonic(), time.process_time()
        page = render(
            points,
            sessions,
            verdicts,
            policy,
            campaign=campaign,
            provenance=fixtures.PROVENANCE,
            generated_at="now",
            requests=requests,
        )
        took_s, busy_s = time.monotonic() - began, time.process_time() - busy
        print(f"render of {rows:,} requests: {took_s:.1f} s, {busy_s:.1f} s of CPU (goal: 10 s)")
        report = Path(folder) / "crossover.html"
        report.write_text(page)
        print(f"size: {report.stat().st_size / 1e6:.2f} MB (goal: 2 MB)")
        painted_s, on_screen = seconds_to_verdict(report)
        where = "on the screen" if on_screen else "NOT on the screen"
        print(f"first paint after opening: {painted_s:.2f} s (goal: 1 s), verdict {where}")


if __name__ == "__main__":
    main()
