"""What the next round of refinement measures, and when there is none."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest
from unit.campaigns import campaign
from unit.test_verdict import GOODPUT, goodput_of, points_of

from crossover import layout, rounds
from crossover.campaign import Analysis, Refine
from crossover.errors import CampaignError
from crossover.files import write_json
from crossover.refine import is_narrow, next_step, outcome_of, plan_round, prospect
from crossover.unused import unused
from crossover.verdict import Verdict, find_verdict

CROSSING = {1: 1.6, 4: 1.3, 16: 0.8, 64: 0.6}
NARROW = {8: 1.2, 9: 1.05, 10: 0.95, 11: 0.8}
REFINE = Refine(rounds=4, target_ratio=1.1)


def judged(ratios, trials=3, **noise) -> Verdict:
    points = points_of(ratios, trials, variant="spec", **noise)
    points["workload"] = "chat"
    analysis = Analysis(sequential=True)
    return find_verdict(points, analysis, variant="spec", baseline="plain")


def test_a_wide_crossing_is_measured_at_its_middle_and_halfway_to_its_ends():
    verdict = judged(CROSSING)
    (crossing,) = verdict.crossings
    step = next_step(verdict, REFINE, 3)
    assert step.outcome == "measure"
    low, high = crossing.ci
    star = crossing.c_star
    middles = [round(math.sqrt(low * star)), round(star), round(math.sqrt(star * high))]
    assert set(step.levels) == {*middles, 4, 16}, "its bracket links the round to earlier trials"
    assert f"C* {star:.4g}" in step.why


def test_a_level_that_is_nearly_measured_already_is_measured_again():
    verdict = judged(CROSSING)
    star = verdict.crossings[0].c_star
    levels = tuple(
        replace(level, concurrency=round(star)) if level.concurrency == 64 else level
        for level in verdict.levels
    )
    step = next_step(replace(verdict, levels=levels), REFINE, 3)
    assert round(star) in step.levels
    assert not {4, 16} & set(step.levels)


def test_a_crossing_within_the_target_or_one_whole_concurrency_is_narrow():
    crossing = judged(CROSSING).crossings[0]
    assert is_narrow(replace(crossing, ci=(100.0, 109.0)), 1.1)
    assert not is_narrow(replace(crossing, ci=(100.0, 111.0)), 1.1)
    assert is_narrow(replace(crossing, ci=(3.1, 3.9)), 1.1)
    assert is_narrow(replace(crossing, ci=(3 - 1e-12, 3.9)), 1.1), "3, but for the arithmetic"


def test_two_trials_settle_nothing():
    verdict = judged(NARROW, trials=2, noise=0.0005)
    assert all(is_narrow(c, 1.5) for c in verdict.crossings)
    settled = Refine(rounds=4, target_ratio=1.5)
    step = next_step(verdict, settled, 2)
    assert (step.outcome, set(step.levels)) == ("measure", {9, 10})
    assert next_step(judged(NARROW, noise=0.0005), settled, 3).outcome == "target"


@pytest.mark.parametrize("ratios", [{1: 1.4, 4: 1.3, 16: 1.2}, {1: 1.0, 4: 1.0, 16: 1.0}])
def test_a_verdict_without_a_crossing_needs_nothing_more(ratios):
    step = next_step(judged(ratios), REFINE, 3)
    assert (step.outcome, step.levels) == ("decided", ())


def test_unresolved_levels_are_measured_again_with_their_neighbours():
    verdict = judged({1: 1.4, 2: 1.4, 4: 1.4, 8: 1.4, 16: 0.96}, noise=0.02)
    assert verdict.verdict == "inconclusive"
    assert [level.label for level in verdict.levels] == ["+", "+", "+", "+", "?"]
    step = next_step(verdict, REFINE, 3)
    assert (step.outcome, step.levels) == ("measure_longer", (8, 16))


def test_what_would_take_many_times_the_budget_is_given_up():
    verdict = judged({1: 1.021, 4: 1.021, 16: 1.021}, noise=0.08)
    assert verdict.verdict == "inconclusive"
    small = Refine(rounds=1)
    step = next_step(verdict, small, 2)
    assert (step.outcome, step.levels) == ("hopeless", ())
    assert "more than 12 trials" in step.why


def test_where_windows_are_too_short_longer_ones_are_tried_whatever_the_trials():
    verdict = judged({1: 1.04, 4: 1.04, 16: 1.04}, trials=2, noise=0.001, cv_within=0.2)
    assert all(need["window_cv"] for need in verdict.needed)
    step = next_step(verdict, Refine(rounds=1), 2)
    assert (step.outcome, step.levels) == ("measure_longer", (1, 4, 16))


def test_one_trial_is_repeated_whole():
    step = next_step(judged(CROSSING, trials=1), REFINE, 1)
    assert (step.levels, step.why) == (tuple(CROSSING), "nothing was repeated")


def test_one_level_and_arms_that_cannot_be_compared_are_not_tried():
    assert next_step(judged({4: 1.3}), REFINE, 3).outcome == "hopeless"
    nothing = find_verdict(
        pd.DataFrame({"variant": ["plain"], "trial": [1], "concurrency": [1]}).assign(
            output_throughput_tokens_per_s=1.0
        ),
        Analysis(),
        variant="spec",
        baseline="plain",
    )
    assert next_step(nothing, REFINE, 3).outcome == "not_comparable"


def test_an_arm_that_repeats_the_baseline_needs_nothing():
    verdict = replace(judged(CROSSING), same_configuration=True)
    assert next_step(verdict, REFINE, 3).outcome == "decided"


# ------------------------------------------------------------------ beside zeros


def judged_goodput(zero_at, levels=(1, 4, 16, 64)) -> Verdict:
    points = goodput_of(zero_at, levels=levels, variant="spec", arm="spec")
    analysis = Analysis(sequential=True)
    return find_verdict(points, analysis, variant="spec", baseline="plain", metric="goodput")


def test_a_crossing_to_a_zero_is_narrowed_by_levels_within_its_bracket_alone():
    """Its interval is the bracket, which more trials of measured levels leave as it is."""
    verdict = judged_goodput([16, 64])
    assert verdict.crossings[0].ci == (4.0, 16.0)
    assert next_step(verdict, REFINE, 3).levels == (4, 6, 8, 11, 16)
    finer = judged_goodput([104], levels=(1, 100, 104))
    step = next_step(finer, Refine(rounds=4, target_ratio=1.01), 3)
    assert step.levels == (100, 101, 102, 103, 104), "though they are within 3 % of the ends"


def test_a_crossing_between_whole_neighbours_is_found():
    verdict = judged_goodput([5, 64], levels=(1, 4, 5, 64))
    assert verdict.crossings[0].bracket == (4, 5)
    assert next_step(verdict, REFINE, 3).outcome == "target"


def test_where_all_within_a_bracket_was_measured_and_is_zero_at_times_nothing_more_helps():
    points = goodput_of([6, 64], levels=(1, 4, 5, 6, 64), variant="spec", arm="spec")
    once = (points["variant"] == "spec") & (points["concurrency"] == 5) & (points["trial"] == 1)
    points.loc[once, GOODPUT] = 0.0
    verdict = find_verdict(
        points, Analysis(sequential=True), variant="spec", baseline="plain", metric="goodput"
    )
    assert verdict.crossings[0].bracket == (4, 6)
    step = next_step(verdict, REFINE, 3)
    assert (step.outcome, step.levels) == ("hopeless", ())
    assert "every level within" in step.why


def test_one_level_with_values_gets_another_between_it_and_the_zeros():
    verdict = judged_goodput([16, 64], levels=(4, 16, 64))
    assert verdict.verdict == "inconclusive"
    step = next_step(verdict, REFINE, 3)
    assert (step.outcome, step.levels) == ("measure", (4, 8))
    neighbours = judged_goodput([5, 6], levels=(4, 5, 6))
    assert next_step(neighbours, REFINE, 3).outcome == "hopeless"


# ------------------------------------------------------------------ rounds


@pytest.fixture
def planned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return campaign(tmp_path, refine={"rounds": 3, "max_points": 20})


def test_a_round_is_one_more_trial_of_both_arms(planned):
    plan = plan_round(1, [judged(CROSSING)], planned, [])
    levels = plan.steps[0].levels
    assert plan.points == tuple(
        (arm, "chat", level, False) for arm in ("plain", "spec") for level in levels
    )
    rounds.write(plan, rounds.file_of(layout.refine_folder(planned), 1))
    assert layout.rounds_of(planned) == [plan]
    added = [s for s in layout.sessions(planned) if s.trial == 101]
    assert [s.rank for s in added] == [8, 9]
    assert {p.level for p in layout.points_of(planned, added[0])} == set(levels)
    assert len(list(layout.points(planned))) == 24 + len(plan.points)


def test_a_long_window_is_another_point_and_serves_who_asked_for_a_short_one(planned):
    crossing, unresolved = judged(CROSSING), judged({1: 1.4, 16: 0.99, 64: 1.4}, noise=0.02)
    plan = plan_round(1, [unresolved, crossing], planned, [])
    wanted = {point.concurrency: point.long_window for point in plan.points}
    (long, short) = plan.steps[0].levels, plan.steps[1].levels
    assert len(plan.points) == 2 * len({*long, *short})
    assert {level for level, is_long in wanted.items() if is_long} == set(long)
    assert 16 in set(long) & set(short)
    rounds.write(plan, rounds.file_of(layout.refine_folder(planned), 1))
    assert layout.rounds_of(planned) == [plan]
    (session, _) = [s for s in layout.sessions(planned) if s.trial == 101]
    for point in layout.points_of(planned, session):
        own = point.folder.parent.name == planned.point_digests["chat"]
        assert own != wanted[point.level] == point.long_window


def test_a_round_that_the_points_do_not_suffice_for_is_not_begun(planned):
    first = plan_round(1, [judged(CROSSING)], planned, [])
    second = plan_round(2, [judged(CROSSING)], planned, [first, first])
    assert (second.stopped, second.points) == ("max_points", ())
    assert second.steps == first.steps


def test_rounds_end_where_nothing_is_needed(planned):
    stop = plan_round(1, [judged({1: 1.4, 4: 1.3, 16: 1.2})], planned, [])
    assert (stop.stopped, stop.points) == ("done", ())
    assert layout.may_refine(planned)
    rounds.write(stop, rounds.file_of(layout.refine_folder(planned), 1))
    assert not layout.may_refine(planned)


def test_the_plan_depends_on_what_is_measured_and_not_on_how_it_is_judged(tmp_path):
    usual = {"refine": {"rounds": 2}}
    digest = campaign(tmp_path, **usual).refine_digest
    for other in (
        {"analysis": {"margin": 0.1, "confidence": 0.9}},
        {"refine": {"rounds": 5}},
        {"load": {"concurrency": [1, 2], "trials": 2}},
    ):
        assert campaign(tmp_path, **{**usual, **other}).refine_digest == digest
    for other in ({"refine": {"rounds": 2, "target_ratio": 1.3}}, {"epoch": 2}):
        assert campaign(tmp_path, **{**usual, **other}).refine_digest != digest


def test_rounds_change_no_digest_of_what_is_measured(tmp_path):
    with_rounds, without = campaign(tmp_path, refine={"rounds": 2}), campaign(tmp_path)
    assert with_rounds.server_digests == without.server_digests
    assert with_rounds.point_digests == without.point_digests
    assert without.analysis.alpha == pytest.approx(0.05)
    assert with_rounds.analysis.alpha == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("refine", "said"),
    [
        ({"round": 2}, "did you mean 'rounds'"),
        ({"rounds": -1}, "refine.rounds"),
        ({"rounds": 2, "target_ratio": 1}, "refine.target_ratio"),
        ({"rounds": 2, "max_points": 0}, "refine.max_points"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, refine, said):
    with pytest.raises(CampaignError, match=said):
        campaign(tmp_path, refine=refine)


# ------------------------------------------------------------------ what came of it


def test_the_outcome_says_why_it_ended(planned):
    wide, settled = judged(CROSSING), judged({1: 1.4, 4: 1.3, 16: 1.2})
    first = plan_round(1, [wide], planned, [])
    n = len(first.points)
    stop = plan_round(2, [settled], planned, [first])
    full = replace(stop, stopped="max_points")

    def ended(verdict, *done):
        return outcome_of(verdict, planned, done)

    decided = ended(settled, first, stop)
    assert (decided["ended"], decided["rounds"], decided["points"]) == ("decided", 1, n)
    assert ended(settled, stop)["rounds"] == 0
    assert "raise refine.rounds above 3" in ended(wide, first, first, first)["text"]
    assert ended(wide, first, full)["ended"] == "max_points"
    assert "raise refine.max_points above 20" in ended(wide, first, full)["text"]
    other = ended(wide, first, stop)
    assert other["ended"] == "settings"
    assert "remove the last plan" in other["text"]


def test_a_plan_counts_what_is_left(planned):
    first = plan_round(1, [judged(CROSSING)], planned, [])
    said = prospect(planned, [first])
    assert f"2 rounds (from trial 102) and {20 - len(first.points)} points" in said


def test_plans_of_the_present_settings_are_in_use(planned, tmp_path):
    plan = plan_round(1, [judged(CROSSING)], planned, [])
    rounds.write(plan, rounds.file_of(layout.refine_folder(planned), 1))
    for point in layout.points(planned):
        write_json({}, point.file)
    assert list(unused([planned])) == []
    other = campaign(tmp_path, refine={"rounds": 3, "target_ratio": 1.5})
    found = set(unused([other]))
    assert layout.refine_folder(planned) in found
    assert len([path for path in found if path.name == "trial~101"]) == 2
