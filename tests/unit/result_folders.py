"""Folders with the results of a campaign, for tests that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from report_fixtures import COLUMN, points, sessions

from crossover.files import write_json
from crossover.records import POINTS, SESSIONS, to_table, write_parquet
from crossover.verdicts import judge

if TYPE_CHECKING:
    from pathlib import Path

    from crossover.campaign import Campaign


def write_results(
    folder: Path,
    c: Campaign,
    *,
    run: str = "first",
    speed: dict[str, float] | None = None,
    of_points: dict[str, Any] | None = None,
    of_sessions: dict[str, Any] | None = None,
) -> str:
    """Write points, sessions and verdicts of a campaign as its folder holds them.

    Args:
        folder: is made.
        c: the campaign.
        run: makes the sessions those of this run.
        speed: variant → factor on its throughputs.
        of_points, of_sessions: values that replace a column's.
    """
    rows = [
        {
            **row,
            "errors_by_class": {},
            "point_digest": "00000001",
            "session_id": f"{run}-{row['session_id']}",
            COLUMN: row[COLUMN] * (speed or {}).get(row["variant"], 1.0),
            **(of_points or {}),
        }
        for row in points(c).to_pylist()
    ]
    lives = [
        {
            **row,
            "env": {},
            "inherited_env": {},
            "session_id": f"{run}-{row['session_id']}",
            "model_name": c.model.name,
            "protocol": 1,
            **(of_sessions or {}),
        }
        for row in sessions(c).to_pylist()
    ]
    table, of_lives = to_table(rows, POINTS), to_table(lives, SESSIONS)
    verdicts, _ = judge(table.to_pandas(), of_lives.to_pandas(), c)
    write_parquet(table, folder / "points.parquet")
    write_parquet(of_lives, folder / "sessions.parquet")
    write_json(verdicts, folder / "verdicts.json")
    return str(folder)
