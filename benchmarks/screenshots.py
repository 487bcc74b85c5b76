"""Pictures of a report, light and dark, as the README shows them.

    .venv/bin/python benchmarks/screenshots.py [REPORT [FOLDER]]

Needs Chromium (Debian's package `chromium`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OFFLINE = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCHEMES = {"dark": 0, "light": 1}  # Blink's preferredColorScheme


def main() -> None:
    arguments = dict(enumerate(sys.argv))
    report = Path(arguments.get(1, "reports/crossover.html")).resolve()
    folder = Path(arguments.get(2, "docs/images"))
    folder.mkdir(parents=True, exist_ok=True)
    if (chromium := shutil.which("chromium")) is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    for name, scheme in SCHEMES.items():
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [
                    chromium,
                    *OFFLINE,
                    f"--user-data-dir={profile}",
                    f"--blink-settings=preferredColorScheme={scheme}",
                    "--window-size=960,1500",
                    "--virtual-time-budget=10000",
                    f"--screenshot={(folder / f'report-{name}.png').resolve()}",
                    report.as_uri(),
                ],
                check=True,
                capture_output=True,
            )
        print(folder / f"report-{name}.png")


if __name__ == "__main__":
    main()
