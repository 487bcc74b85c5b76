"""What GPUs draw and do: from the driver's answers to the columns of a point."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from crossover.measured import columns_of_samples
from crossover.server.sampling import GpuLoad

STAND_INS = Path(__file__).parents[1] / "stand_ins"
IDLE = 0x01
POWER_CAP, POWER_BRAKE = 0x04, 0x80
HOT_SOFTWARE, HOT_HARDWARE = 0x20, 0x40
GPU = {"used": 10, "pids": [], "mw": 500_000, "mj": 7_000, "sm_mhz": 1980, "reasons": 0}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Sets what the driver says of the GPUs from now on."""
    monkeypatch.syspath_prepend(STAND_INS)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    file = tmp_path / "nvml.json"
    monkeypatch.setenv("STAND_IN_NVML", str(file))

    def say(*gpus: dict) -> None:
        file.write_text(json.dumps(gpus))

    yield say
    sys.modules.pop("pynvml", None)


def read(*devices: str) -> dict[str, float]:
    with GpuLoad(devices) as gpus:
        return gpus.read()


def test_sums_over_the_sessions_gpus_and_the_slowest_clock(driver):
    other = {**GPU, "used": 32, "mw": 250_000, "mj": 1_500, "sm_mhz": 1200}
    driver(GPU, {**GPU, "mw": 1}, other)
    assert read("gpu0", "cpu0", "gpu2") == {
        "gpu_power_w": 750,
        "gpu_energy_j": 8.5,
        "gpu_memory_bytes": 42,
        "gpu_sm_clock_mhz": 1200,
        "gpu_power_throttled": 0,
        "gpu_heat_throttled": 0,
    }


@pytest.mark.parametrize(
    ("reasons", "power", "heat"),
    [
        (IDLE, 0, 0),
        (POWER_CAP, 1, 0),
        (POWER_BRAKE | IDLE, 1, 0),
        (HOT_SOFTWARE, 0, 1),
        (HOT_HARDWARE | POWER_CAP, 1, 1),
    ],
)
def test_one_gpu_that_is_held_down_is_enough(driver, reasons: int, power: int, heat: int):
    driver(GPU, {**GPU, "reasons": reasons})
    load = read("gpu0", "gpu1")
    assert (load["gpu_power_throttled"], load["gpu_heat_throttled"]) == (power, heat)


def test_a_session_without_a_gpu_asks_no_driver(driver):
    assert read("cpu0") == {}


def test_without_a_driver_nothing_is_known(driver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("STAND_IN_NVML")
    assert read("gpu0") == {}


def test_a_driver_that_does_not_tell_all_tells_nothing(driver):
    driver({"used": 10, "pids": []})
    assert read("gpu0") == {}


def sampled(driver, *, mj: list[int], every_s: float = 0.5, **changes: list[float]) -> list[dict]:
    """Samples as a session's supervisor takes them, with `mj` and what changes one a sample."""
    samples = []
    for number, energy in enumerate(mj):
        gpu = {**GPU, "mj": energy, **{name: values[number] for name, values in changes.items()}}
        driver(gpu)
        samples.append({"t": 100 + number * every_s, **read("gpu0")})
    return samples


def test_energy_of_the_window_is_the_rate_between_the_samples_in_it(driver):
    # 600 J/s; the samples leave half a second at either end of the window out
    known = sampled(driver, mj=[50_000, 350_000, 650_000])
    columns = columns_of_samples(known, window_s=2.0)
    assert columns["gpu_energy_j"] == pytest.approx(1200)


def test_means_and_shares_over_the_samples(driver):
    known = sampled(
        driver,
        mj=[0, 1, 2, 3],
        mw=[400_000, 500_000, 600_000, 500_000],
        used=[10, 40, 30, 20],
        sm_mhz=[1980, 1980, 1200, 1000],
        reasons=[0, POWER_CAP, POWER_CAP, HOT_HARDWARE],
    )
    columns = columns_of_samples(known, window_s=1.5)
    assert columns["gpu_power_w_mean"] == 500
    assert columns["gpu_memory_bytes_max"] == 40
    assert columns["gpu_sm_clock_mhz_mean"] == 1540
    assert columns["gpu_power_throttled_share"] == 0.5
    assert columns["gpu_heat_throttled_share"] == 0.25


def test_one_sample_tells_no_energy(driver):
    columns = columns_of_samples(sampled(driver, mj=[5]), window_s=1.0)
    assert columns["gpu_energy_j"] is None
    assert columns["gpu_power_w_mean"] == 500


def test_without_a_gpu_every_column_is_unknown():
    columns = columns_of_samples([{"t": 1.0}, {"t": 2.0}], window_s=1.0)
    told = {name: value for name, value in columns.items() if name.startswith("gpu_")}
    assert len(told) == 6
    assert set(told.values()) == {None}
