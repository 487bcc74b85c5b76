"""Which version of this program ran."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str | None:
    """Commit of this code, with `+` where the working tree differs; None outside git."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        described = subprocess.run(
            command,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
