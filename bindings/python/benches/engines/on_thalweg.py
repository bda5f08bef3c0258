"""Thalweg: SQL over tables of Arrow, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc

import thalweg as tw

from .measured import Measured, timed


def words(table: Any) -> Measured:
    result = tw.connect().sql("SELECT word, COUNT(*) AS n FROM t GROUP BY word", t=table.select(["word"]))

    def run() -> object:
        return pa.Table.from_batches([pa.record_batch(batch) for batch in result.changes()])

    def checksum(changes: pa.Table) -> object:
        # Counts only grow, so the largest is the last one.
        counts = changes.cast(pa.schema({"word": pa.string(), "n": pa.int64()})).group_by("word")
        counts = counts.aggregate([("n", "max")])
        return pc.sum(counts["n_max"]).as_py(), counts.num_rows

    return timed(run, checksum)


def windows(table: Any) -> Measured:
    given = tw.stream(table.select(["ts", "k", "x"]), rowtime="ts", delay="1 s")
    sums = (
        "SELECT k, window_start, SUM(x) AS s FROM TUMBLE(t, ts, INTERVAL '1' MINUTE) "
        "GROUP BY k, window_start, window_end"
    )
    result = tw.connect().sql(sums, t=given)

    return timed(result.arrow, lambda whole: (pc.sum(whole["s"]).as_py(), whole.num_rows))


def join(tables: Any) -> Measured:
    orders, payments = (tw.stream(table, rowtime="ts", delay="2 s") for table in tables)
    pairs = (
        "SELECT o.x + p.x AS x FROM orders AS o JOIN payments AS p "
        "ON o.order_id = p.order_id AND p.ts BETWEEN o.ts - INTERVAL '1' MINUTE AND o.ts + INTERVAL '1' MINUTE"
    )
    result = tw.connect().sql(pairs, orders=orders, payments=payments)

    return timed(result.arrow, lambda whole: (pc.sum(whole["x"]).as_py(), whole.num_rows))


def function(kind: str) -> Callable[[Any], Measured]:
    """A query over `f` that computes x * 1.19 + 1 in SQL, over columns, or for each row."""

    def measured(table: Any) -> Measured:
        def over_columns(x: pa.Array) -> Annotated[pa.Array, "DOUBLE"]:
            return pc.add(pc.multiply(x, 1.19), 1.0)

        def by_row(x: float) -> float:
            return x * 1.19 + 1.0

        db = tw.connect(workers=1)
        db.register_function(tw.udf(over_columns))
        db.register_function(tw.udf(rows=True)(by_row))
        call = {"sql": "f * CAST(1.19 AS DOUBLE) + CAST(1 AS DOUBLE)"}.get(kind, f"{kind}(f)")
        batches = table.select(["f"]).combine_chunks().to_batches(max_chunksize=8192)
        result = db.sql(f"SELECT SUM({call}) AS s FROM t", t=pa.Table.from_batches(batches))
        return timed(result.fetchall, lambda rows: round(rows[0][0], 3))

    return measured
