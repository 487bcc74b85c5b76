"""Tables of points that were measured by different versions of this program."""

import pyarrow.parquet as pq

from crossover.files import write_json
from crossover.records import (
    POINTS,
    REQUESTS,
    arrow_schema,
    to_table,
    write_parquet,
)
from crossover.summary import summarise

NEW = ("request_rate", "scheduled_s")


def test_a_column_that_is_newer_than_a_point_is_null(tmp_path):
    """An older point has the same digest: it is not measured again for want of a column."""
    files = []
    for level, without in ((4, NEW), (8, ())):
        folder = tmp_path / f"plain/server/trial~1/chat/point/concurrency~{level}"
        row = {"variant": "plain", "workload": "chat", "trial": 1, "concurrency": level}
        requests = to_table([{**row, "request_id": 0, "sent_s": 1.5}], REQUESTS)
        write_parquet(requests.drop_columns(list(without)), folder / "requests.parquet")
        write_json(row, folder / "point.json")
        files.append(str(folder / "point.json"))
    tables = {name: tmp_path / f"{name}.parquet" for name in ("points", "requests", "sessions")}
    summarise(files, **{name: str(path) for name, path in tables.items()})
    requests = pq.read_table(tables["requests"])
    assert requests.schema.equals(arrow_schema(REQUESTS))
    assert requests.column("concurrency").to_pylist() == [4, 8]
    assert [requests.column(name).to_pylist() for name in NEW] == [[None, None]] * 2
    assert requests.column("sent_s").to_pylist() == [1.5, 1.5]
    assert pq.read_schema(tables["points"]).names == [c.name for c in POINTS]
