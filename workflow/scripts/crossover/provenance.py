"""Where a result comes from: machine, versions, commit, model file, campaign."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import socket
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

from crossover import gpu
from crossover.digests import canonical
from crossover.revision import commit

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from crossover.campaign import Campaign

_PACKAGES = ("snakemake", "pandas", "pyarrow", "httpx", "httptools", "numpy", "scipy", "altair")


def versions() -> dict[str, str]:
    """Python and the packages that measure and analyse."""
    return {
        "python": platform.python_version(),
        **{p: importlib.metadata.version(p) for p in _PACKAGES},
    }


def hardware(devices: Iterable[str] = ()) -> dict[str, Any]:
    """CPU, cores, memory and kernel of this host, and the GPUs among `devices`.

    `gpus` and their `driver` are missing where there are none, or where the driver does not answer.
    """
    return {
        **_gpus(devices),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
    }


def _gpus(devices: Iterable[str]) -> dict[str, Any]:
    gpus = gpu.of(devices)
    if not gpus:
        return {}
    try:
        with gpu.nvml() as driver:
            return {
                "gpus": gpu.names(driver, gpus),
                "driver": driver.nvmlSystemGetDriverVersion(),
            }
    except gpu.NvmlUnavailable:
        return {}


def machine(devices: Iterable[str]) -> dict[str, Any]:
    """The columns of records.SESSIONS that say where and with what a session on devices ran."""
    return {
        "commit": commit(),
        "host": socket.gethostname(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "hardware": json.dumps(hardware(devices)),
        "versions": json.dumps(versions()),
    }


def of_campaign(campaign: Campaign, sessions: pa.Table, source: str) -> dict[str, Any]:
    """What the report prints below its results.

    Args:
        campaign: as it was read from `source`.
        sessions: rows of records.SESSIONS.
        source: the campaign file.
    """
    rows = sessions.to_pylist()
    named = f" --config imports={shlex.quote(campaign.imports)}" if campaign.imports else ""
    if campaign.imports and campaign.baseline:
        named += f" baseline={shlex.quote(campaign.baseline)}"
    dates = [row["started_at"] for row in rows if row["started_at"] is not None]
    commands = {row["variant"]: shlex.join(row["command"]) for row in rows if row["command"]}
    settings = asdict(campaign)
    if (
        campaign.imports
    ):  # how to measure is not asked of who imports, and its defaults are no facts
        settings = {key: settings[key] for key in ("name", "imports", "baseline", "analysis")}
    return {
        "commands": [
            f"snakemake -c1 reports/crossover.html --configfile {shlex.quote(source)}{named}",
            *(f"# {variant}\n{command}" for variant, command in commands.items()),
        ],
        "versions": json.loads(rows[-1]["versions"] or "{}") if rows else {},
        "hardware": json.loads(rows[-1]["hardware"] or "{}") if rows else {},
        "hosts": sorted({row["host"] for row in rows if row["host"]}),
        "commits": sorted({row["commit"] for row in rows if row["commit"]}),
        "config_sha256": hashlib.sha256(canonical(settings).encode()).hexdigest(),
        "config_text": yaml.safe_dump(json.loads(canonical(settings)), sort_keys=False),
        "dates": [_date(pick(dates)) for pick in (min, max)] if dates else [],
    }


def _date(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def fingerprint(path: str | None) -> str | None:
    """Size and digest of the first and last MiB of a file; None for a name or a folder."""
    if path is None or not Path(path).is_file():
        return None
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read(2**20))
        file.seek(max(0, size - 2**20))
        digest.update(file.read(2**20))
    return f"{size}:{digest.hexdigest()[:16]}"


def _output(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None
