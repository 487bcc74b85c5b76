"""What a campaign will cost, before and after parts of it were measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from unit.campaigns import CONFIG, campaign

from crossover import layout
from crossover.files import write_json
from crossover.plan import POINT_OVERHEAD_S, START_S, Durations, cost
from crossover.server import session
from crossover.standing import Standing, write


@pytest.fixture
def planned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load = {
        **CONFIG["load"],
        "trials": 2,
        "ramp_s": 1,
        "warmup": {"completions_per_client": 1},
        "steady": {"min_s": 10, "completions_per_client": 2},
    }
    return campaign(tmp_path, load=load)


def measure(point: layout.PlannedPoint, load_s: float) -> None:
    write_json({"load_s": load_s}, point.file)


def test_nothing_measured_costs_the_least_that_the_settings_allow(planned):
    found = cost(planned)
    assert (found.points, found.points_done, found.sessions) == (12, 0, 4)
    assert found.estimated_points == 12
    assert found.estimated_starts == 4
    a_point_s = 1 + 10 * 1.5 + POINT_OVERHEAD_S
    assert found.seconds == pytest.approx(4 * START_S + 12 * a_point_s)
    assert "never measured" in str(found)


def test_what_was_measured_is_taken_for_what_is_like_it(planned):
    points = list(layout.points(planned))
    first = points[0]
    measure(first, 100.0)
    found = cost(planned)
    assert (found.points, found.points_done) == (11, 1)
    # the same level of the other trial and of the other variant
    assert found.estimated_points == 11 - 3
    assert found.longest_point_s == pytest.approx(100.0 + POINT_OVERHEAD_S)


def test_a_long_window_takes_its_greater_length_more(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load = {**CONFIG["load"], "steady": {"min_s": 10}}
    refined = campaign(tmp_path, load=load, refine={"rounds": 1, "max_points": 5})
    first = next(layout.points(refined))
    assert cost(refined).refinement_s == pytest.approx(
        2 * START_S + 5 * (cost(refined).longest_point_s + 30)
    )
    long = replace(first, long_window=True, folder=tmp_path / "long")
    measure(long, 100.0)
    durations = Durations(refined.load, [long])
    assert durations.of(long)[0] == pytest.approx(100 + POINT_OVERHEAD_S)
    assert durations.of(first)[0] == pytest.approx(70 + POINT_OVERHEAD_S)


def test_a_start_that_was_measured_counts(planned):
    folder = layout.session_folder(planned, planned.sessions[0])
    session.append(folder / "sessions" / "x.jsonl", "ready", ready_after_s=7.0)
    session.append(folder / "sessions" / "x.jsonl", "stopped", stop_s=1.0)
    assert cost(planned).estimated_starts == 2


def test_several_devices_count_each(tmp_path, planned):
    variants = {"plain": {}, "spec": {"devices": ["gpu0", "gpu1"]}}
    both = campaign(tmp_path, load=CONFIG["load"], variants=variants)
    found = cost(both)
    assert found.device_seconds == pytest.approx(1.5 * found.seconds)


def test_a_campaign_that_is_done_costs_nothing(planned):
    for point in layout.points(planned):
        measure(point, 1.0)
    found = cost(planned)
    assert (found.points, found.sessions, found.seconds) == (0, 0, 0)
    assert "never" not in str(found)


def test_a_run_knows_where_it_stands(planned, tmp_path):
    points = list(layout.points(planned))
    measure(points[0], 1.0)
    write((p.file for p in points), "standing.json")
    assert Standing.read("standing.json") == Standing(points=12, done=1, eta_s=None)
    measure(points[1], 1.0)
    run = json.loads((tmp_path / "standing.json").read_text())
    write_json({**run, "began_at": run["began_at"] - 10}, "standing.json")
    now = Standing.read("standing.json")
    assert now.done == 2
    assert now.eta_s == pytest.approx(100, rel=0.1)
    assert Standing.read("nothing.json") is None


def test_results_that_no_file_names_are_found_outermost_first(planned, tmp_path):
    from crossover.unused import unused

    for point in layout.points(planned):
        measure(point, 1.0)
    (layout.session_folder(planned, planned.sessions[0]) / "sessions").mkdir()
    assert list(unused([planned])) == []
    (tmp_path / "results/test/plain/00000000/trial~1").mkdir(parents=True)  # left by a dry run
    assert list(unused([planned])) == []
    load = {**CONFIG["load"], "concurrency": [1, 4], "trials": 2}
    variants = {"plain": {}, "spec": {"args": {"drafted-tokens": 2}}}
    now = campaign(tmp_path, load=load, variants=variants)
    found = {str(path) for path in unused([now])}
    old_server = f"results/test/spec/{planned.server_digests['spec']}"
    assert old_server in found
    assert not any(path.startswith(f"{old_server}/") for path in found)
    old_points = planned.point_digests["chat"]
    assert any(path.endswith(f"/chat/{old_points}") for path in found)
