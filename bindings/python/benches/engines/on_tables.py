"""Polars and DuckDB: the same windows where the whole table is there."""

from __future__ import annotations

from typing import Any

from .measured import Measured, timed


def polars_windows(table: Any) -> Measured:
    import polars as pl

    frame = pl.from_arrow(table.select(["ts", "k", "x"])).lazy()

    windows = frame.group_by("k", pl.col("ts").dt.truncate("1m")).agg(pl.col("x").sum())
    return timed(windows.collect, lambda found: (found["x"].sum(), found.height))


def duckdb_windows(table: Any) -> Measured:
    import duckdb
    import pyarrow.compute as pc

    connection = duckdb.connect()
    connection.register("given", table.select(["ts", "k", "x"]))

    query = "SELECT k, time_bucket(INTERVAL '1 minute', ts), SUM(x) AS s FROM given GROUP BY ALL"
    return timed(
        lambda: connection.sql(query).to_arrow_table(),
        lambda found: (int(pc.sum(found["s"]).as_py()), found.num_rows),
    )
