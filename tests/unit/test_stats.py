"""The model at the levels and the curve between them."""

import functools
import importlib.util
import json
import math
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crossover.campaign import Analysis
from crossover.stats.curve import find_crossing, hard_bracket, structural_band
from crossover.stats.model import Observation, Settings, fit
from crossover.verdict import find_verdict

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden_public.json"
CASES = json.loads(GOLDEN.read_text())["cases"]
LEVELS = (1, 2, 5, 10, 30, 70, 100, 250)


def load_driver():
    path = ROOT / "benchmarks" / "golden_cases.py"
    spec = importlib.util.spec_from_file_location("golden_cases", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


golden_cases = load_driver()


def roofline(concurrency, single_stream, plateau):
    """Throughput that grows linearly and saturates smoothly: concave, monotone, slope ≤ 1."""
    return plateau * single_stream * concurrency / (plateau + single_stream * concurrency)


def arm(truth, levels, launches, rng, *, launch_sd=0.005, noise_sd=0.005, first=0):
    """Observations of one arm under the model of `stats.model`."""
    return [
        Observation(
            level=level,
            trial=launch,
            launch=launch,
            block=launch,
            log_value=math.log(truth(level)) + effect + rng.normal(0, noise_sd),
        )
        for launch in range(first, first + launches)
        for effect in [rng.normal(0, launch_sd)]
        for level in levels
    ]


# ------------------------------------------------------------------ golden cases


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_golden_case(case):
    assert golden_cases.differences(case) == []


def test_golden_driver_reports_what_differs(tmp_path, capsys):
    wrong = json.loads(GOLDEN.read_text())
    wrong["cases"][0]["expected"]["crossings"][0]["C_star"] *= 1.1
    wrong["cases"][1]["expected"]["verdict"] = "equivalent"
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(wrong))

    assert golden_cases.main([str(path)]) == 1
    printed = capsys.readouterr().out
    assert "P01: C*" in printed
    assert "P02: verdict: inconclusive, expected equivalent" in printed
    assert printed.endswith("8 of 10 cases\n")
    assert golden_cases.main([str(GOLDEN)]) == 0


@pytest.mark.parametrize("case", CASES[:1] + CASES[4:9], ids=lambda case: case["id"])
def test_order_of_rows_does_not_matter(case):
    rows = list(case["rows"])
    random.Random(1).shuffle(rows)
    assert golden_cases.differences({**case, "rows": rows}) == []


# ------------------------------------------------------------------ the model


def test_swapping_the_arms_inverts_the_ratio():
    rng = np.random.default_rng(1)
    a = arm(lambda c: roofline(c, 100, 3000), LEVELS, 2, rng)
    b = arm(lambda c: roofline(c, 150, 2500), LEVELS, 2, rng)
    one, other = fit(a, b, Settings()), fit(b, a, Settings())
    np.testing.assert_allclose(one.log_ratio, -other.log_ratio)
    np.testing.assert_allclose(one.se, other.se)
    np.testing.assert_allclose(one.df, other.df)


def test_levels_of_one_launch_are_no_replicates():
    """One slow launch of two must not become a significant loss at every level."""
    rng = np.random.default_rng(2)
    baseline = arm(lambda c: 100 * c, LEVELS, 2, rng, launch_sd=0, noise_sd=0.001)
    variant = arm(lambda c: 100 * c, LEVELS, 2, rng, launch_sd=0, noise_sd=0.001)
    slow = [
        Observation(**{**vars(o), "log_value": o.log_value - (0.2 if o.launch == 1 else 0)})
        for o in variant
    ]
    ratio = fit(baseline, slow, Settings())
    assert ratio.tau > 0.05
    assert (np.abs(ratio.log_ratio) < 2 * ratio.se).all()


def test_pairing_follows_the_design():
    rng = np.random.default_rng(3)
    three = [arm(lambda c: 100 * c, LEVELS, 3, rng) for _ in range(2)]
    assert fit(*three, Settings()).paired
    assert not fit(*three, Settings(pairing="unpaired")).paired
    two = [arm(lambda c: 100 * c, LEVELS, 2, rng) for _ in range(2)]
    assert not fit(*two, Settings()).paired
    assert fit(*two, Settings(pairing="paired")).paired
    elsewhere = arm(lambda c: 100 * c, LEVELS, 3, rng, first=10)
    assert not fit(three[0], elsewhere, Settings()).paired


def test_drift_between_blocks_cancels_in_pairs():
    rng = np.random.default_rng(4)
    drift = (0.0, 0.1, -0.1)

    def drifting(truth):
        return [
            Observation(**{**vars(o), "log_value": o.log_value + drift[o.trial]})
            for o in arm(truth, LEVELS, 3, rng, launch_sd=0.001, noise_sd=0.002)
        ]

    arms = drifting(lambda c: 100 * c), drifting(lambda c: 103 * c)
    paired, unpaired = fit(*arms, Settings()), fit(*arms, Settings(pairing="unpaired"))
    assert paired.se.max() < 0.01 < unpaired.se.min()
    np.testing.assert_allclose(paired.log_ratio, math.log(1.03), atol=0.01)


def test_a_level_added_in_sessions_of_its_own_is_no_launch_noise():
    """Sessions that share no level cannot be told from their levels, whatever these are worth."""
    rng = np.random.default_rng(5)

    def grown(truth):
        early = arm(truth, (1, 2, 4, 8), 3, rng)
        late = arm(truth, (64, 128), 3, rng)
        return early + [Observation(**{**vars(o), "launch": f"late {o.launch}"}) for o in late]

    arms = grown(lambda c: 100 * c), grown(lambda c: 90 * c)
    ratio = fit(*arms, Settings(pairing="unpaired"))
    assert ratio.tau < 0.03
    assert (ratio.log_ratio + 3 * ratio.se < 0).all()
    assert ratio.n_trials == 3


def test_no_common_level_is_no_fit():
    rng = np.random.default_rng(6)
    arms = arm(lambda c: c, (1, 2), 3, rng), arm(lambda c: c, (4, 8), 3, rng)
    assert fit(*arms, Settings()) is None


@pytest.mark.parametrize(
    ("launches", "levels", "reasons"),
    [
        (1, (1, 2, 4), ("single_repeat",)),
        (3, (4,), ("no_replication",)),
    ],
)
def test_what_is_missing_is_named(launches, levels, reasons):
    rng = np.random.default_rng(7)
    arms = [arm(lambda c: 100 * c, levels, launches, rng) for _ in range(2)]
    ratio = fit(*arms, Settings())
    assert ratio.reasons == reasons
    assert np.isnan(ratio.se).all()


def test_one_trial_in_several_sessions_is_still_one_trial():
    rng = np.random.default_rng(8)
    arms = [
        [
            Observation(**{**vars(o), "launch": o.level > 2, "trial": 1})
            for o in arm(lambda c: 100 * c, (1, 2, 4, 8), 1, rng)
        ]
        for _ in range(2)
    ]
    assert fit(*arms, Settings()).reasons == ("single_repeat",)


def verdict_of(baseline, variant):
    points = pd.DataFrame(
        {
            "variant": name,
            "trial": o.trial,
            "concurrency": o.level,
            "output_throughput_tokens_per_s": math.exp(o.log_value),
        }
        for name, observations in (("plain", baseline), ("spec", variant))
        for o in observations
    )
    return find_verdict(points, Analysis(), variant="spec", baseline="plain")


@pytest.mark.parametrize("launches", [2, 3])
def test_intervals_cover_the_crossover(launches):
    """Nominal 95 %; 100 random worlds, of which by chance fewer than 90 is < 1 %."""
    rng = np.random.default_rng(9)
    covered = found = 0
    for _ in range(100):
        gain, loss = rng.uniform(1.3, 2.2), rng.uniform(0.6, 0.85)
        plateau = 100 * rng.uniform(20, 60)
        baseline = functools.partial(roofline, single_stream=100, plateau=plateau)
        variant = functools.partial(roofline, single_stream=gain * 100, plateau=loss * plateau)
        # 1/T = 1/(s·C) + 1/P for both arms, so the ratio is 1 where the two sums are equal.
        truth = (1 - 1 / gain) / 100 * plateau / (1 / loss - 1)
        verdict = verdict_of(
            arm(baseline, LEVELS, launches, rng), arm(variant, LEVELS, launches, rng)
        )
        for crossing in verdict.crossings:
            found += 1
            covered += crossing.ci[0] <= truth <= crossing.ci[1]
            assert crossing.direction == "down"
            assert crossing.hard[0] <= crossing.c_star <= crossing.hard[1]
    assert found >= 90
    assert covered >= 0.9 * found


def test_equal_servers_have_no_crossover():
    """At most 5 % false crossovers."""
    rng = np.random.default_rng(10)
    verdicts = [
        verdict_of(*(arm(lambda c: roofline(c, 100, 3000), LEVELS, 3, rng) for _ in range(2)))
        for _ in range(100)
    ]
    wrong = [v for v in verdicts if v.verdict not in ("inconclusive", "equivalent")]
    assert len(wrong) <= 5


# ------------------------------------------------------------------ between the levels


def test_band_holds_every_concave_curve():
    x, at = np.log(LEVELS), np.linspace(0, math.log(250), 200)
    for plateau in (150, 1000, 1e4, 1e9):
        y = np.log(roofline(np.exp(x), 100, plateau))
        lower, upper = structural_band(x, y, np.full(len(x), 1e-8), at)
        truth = np.log(roofline(np.exp(at), 100, plateau))
        assert (lower <= truth + 1e-9).all()
        assert (truth <= upper + 1e-9).all()


def test_band_widens_where_the_data_are_not_concave():
    x = np.log([1, 4, 16, 64])
    y = np.log([100, 110, 300, 900])
    lower, upper = structural_band(x, y, np.full(4, 1e-6), np.array([math.log(2)]))
    assert lower[0] == pytest.approx(y[0])
    assert upper[0] == pytest.approx(y[1])


def test_fine_grid_interpolates_and_is_not_coarse():
    rng = np.random.default_rng(11)
    levels = (8, 10, 12, 14, 16)
    baseline = arm(lambda c: 100 * c, levels, 3, rng, noise_sd=0.002, launch_sd=0.002)
    variant = arm(lambda c: 100 * c * (12.5 / c), levels, 3, rng, noise_sd=0.002, launch_sd=0.002)
    ratio = fit(baseline, variant, Settings())
    crossing = find_crossing(ratio, 0, 4, up=False, laws=True, settings=Settings())
    assert not crossing.coarse
    assert crossing.c_star == pytest.approx(12.5, rel=0.02)
    assert crossing.ci[0] < 12.5 < crossing.ci[1]
    assert crossing.ci[1] / crossing.ci[0] < 1.1


def test_laws_widen_the_interval_of_a_coarse_gap():
    rng = np.random.default_rng(12)
    baseline = arm(lambda c: roofline(c, 100, 3000), LEVELS, 3, rng)
    variant = arm(lambda c: roofline(c, 180, 2300), LEVELS, 3, rng)
    ratio = fit(baseline, variant, Settings())
    with_laws = find_crossing(ratio, 3, 5, up=False, laws=True, settings=Settings())
    without = find_crossing(ratio, 3, 5, up=False, laws=False, settings=Settings())
    assert with_laws.coarse
    assert without.coarse
    assert with_laws.ci != without.ci
    assert without.hard == (10.0, 70.0)


def test_hard_bracket_moves_in_from_both_ends():
    low, high = hard_bracket((10, 70), (math.log(1.5), math.log(1.1)))
    assert low == pytest.approx(15)
    assert high == pytest.approx(70 / 1.1)
    assert hard_bracket((4, 5), (math.log(1.5), math.log(1.1))) is None
