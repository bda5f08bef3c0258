"""Pathway: tables of rows that a connector of Python gives, in this process."""

from __future__ import annotations

from typing import Any

import pathway as pw

from .measured import MINUTE_US, Measured, timed

KINDS = {"word": str, "k": int, "order_id": int, "x": int, "ts": int}


def rows_of(table: Any, names: list[str]) -> Any:
    columns = {name: table[name] for name in names}
    if "ts" in columns:
        columns["ts"] = columns["ts"].cast("int64")
    rows = list(zip(*(column.to_pylist() for column in columns.values())))
    schema = pw.schema_from_types(**{name: KINDS[name] for name in names})

    class Rows(pw.io.python.ConnectorSubject):
        def run(self) -> None:
            for row in rows:
                self.next(**dict(zip(names, row)))

    return pw.io.python.read(Rows(), schema=schema, autocommit_duration_ms=100)


def run() -> None:
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


def words(table: Any) -> Measured:
    counts: dict[str, int] = {}

    def change(key: object, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            counts[row["word"]] = row["n"]

    words = rows_of(table, ["word"])
    pw.io.subscribe(words.groupby(words.word).reduce(words.word, n=pw.reducers.count()), on_change=change)

    return timed(run, lambda _: (sum(counts.values()), len(counts)))


def windows(table: Any) -> Measured:
    sums: dict[Any, int] = {}

    def change(key: object, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            sums[row["k"], row["start"]] = row["s"]

    rows = rows_of(table, ["ts", "k", "x"])
    windowed = rows.windowby(rows.ts, window=pw.temporal.tumbling(duration=MINUTE_US), instance=rows.k)
    result = windowed.reduce(
        k=pw.this._pw_instance, start=pw.this._pw_window_start, s=pw.reducers.sum(pw.this.x)
    )
    pw.io.subscribe(result, on_change=change)

    return timed(run, lambda _: (sum(sums.values()), len(sums)))


def join(tables: Any) -> Measured:
    joined: list[int] = []

    def change(key: object, row: dict[str, Any], time: int, is_addition: bool) -> None:
        joined.append(row["x"] if is_addition else -row["x"])

    orders, payments = (rows_of(table, ["order_id", "x"]) for table in tables)
    result = orders.join(payments, orders.order_id == payments.order_id).select(x=orders.x + payments.x)
    pw.io.subscribe(result, on_change=change)

    return timed(run, lambda _: (sum(joined), len(joined)))


for workload in (words, windows, join):
    workload.also_counts = (rows_of,)  # type: ignore[attr-defined]
