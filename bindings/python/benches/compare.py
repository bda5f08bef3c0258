"""Measures the package and engines that people use from Python on the same rows, in one run.

    python compare.py [--rows 1000000] [--repeat 3] [ENGINE …]

Prints a JSON line for each measurement. Each one has a process of its own, which makes its rows before the clock
starts, so that memory and start-up of one engine do not weigh on another; engines take turns, and the median counts.
An engine that is not installed is left out, with a line that says so. `checksum` is the same for all that ran a workload.

| workload | what it computes | kind |
|---|---|---|
| words | the running count of each word, every update emitted | stream |
| windows | the sum per key and minute of event time | stream |
| batch-windows | the same where the whole table is there | batch |
| udf | x * 1.19 + 1 over 8 Ki rows at a time: SQL, a function over columns, a function for each row | functions |
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

KEYS = 1_000
MINUTE_US = 60_000_000
#: The first moment, in microseconds since 1970, and the time from one row to the next.
START_US, STEP_US = 1_767_225_600_000_000, 1_000


def rows_of(count: int) -> Any:
    """Keys, words, times and values: the same for every engine."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(7)
    keys = random.zipf(1.3, count) % KEYS
    return pa.table(
        {
            "ts": pa.array(START_US + np.arange(count) * STEP_US, pa.timestamp("us")),
            "k": pa.array(keys, pa.int64()),
            "word": pa.array([f"word-{key}" for key in keys.tolist()], pa.string_view()),
            "x": pa.array(random.integers(0, 1_000, count), pa.int64()),
            "f": pa.array(random.random(count), pa.float64()),
        }
    )


Measured = tuple[float, object]


def timed(run: Callable[[], object]) -> Measured:
    begun = time.perf_counter()
    checksum = run()
    return time.perf_counter() - begun, checksum


def thalweg_words(table: Any) -> Measured:
    import thalweg as tw

    result = tw.connect().sql("SELECT word, COUNT(*) AS n FROM t GROUP BY word", t=table.select(["word"]))

    def run() -> object:
        import pyarrow as pa
        import pyarrow.compute as pc

        changes = pa.Table.from_batches([pa.record_batch(batch) for batch in result.changes()])
        # Counts only grow, so the largest is the last one.
        counts = changes.cast(pa.schema({"word": pa.string(), "n": pa.int64()})).group_by("word")
        counts = counts.aggregate([("n", "max")])
        return pc.sum(counts["n_max"]).as_py(), counts.num_rows

    return timed(run)


WINDOWS = (
    "SELECT k, window_start, SUM(x) AS s FROM TUMBLE(t, ts, INTERVAL '1' MINUTE) "
    "GROUP BY k, window_start, window_end"
)


def thalweg_windows(table: Any) -> Measured:
    import thalweg as tw

    given = tw.stream(table.select(["ts", "k", "x"]), rowtime="ts", delay="1 s")
    result = tw.connect().sql(WINDOWS, t=given)

    def run() -> object:
        import pyarrow.compute as pc

        whole = result.arrow()
        return pc.sum(whole["s"]).as_py(), whole.num_rows

    return timed(run)


def bytewax_run(flow: Any) -> None:
    from bytewax.testing import run_main

    run_main(flow)


def bytewax_words(table: Any) -> Measured:
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource

    words, out = table["word"].to_pylist(), []
    flow = Dataflow("words")
    stream = op.input("in", flow, TestingSource(words, batch_size=1_000))
    keyed = op.key_on("key", stream, lambda word: word)
    counted = op.stateful_map("count", keyed, lambda n, _: ((n or 0) + 1, (n or 0) + 1))
    op.output("out", counted, TestingSink(out))

    def run() -> object:
        bytewax_run(flow)
        counts = dict(out)
        return sum(counts.values()), len(counts)

    return timed(run)


def bytewax_windows(table: Any) -> Measured:
    from datetime import datetime, timedelta, timezone

    import bytewax.operators as op
    import bytewax.operators.windowing as win
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource

    times = [time.replace(tzinfo=timezone.utc) for time in table["ts"].to_pylist()]
    rows = list(zip(map(str, table["k"].to_pylist()), times, table["x"].to_pylist()))
    out: list[Any] = []
    flow = Dataflow("windows")
    stream = op.input("in", flow, TestingSource(rows, batch_size=1_000))
    keyed = op.map("key", stream, lambda row: (row[0], row))
    clock = win.EventClock(ts_getter=lambda row: row[1], wait_for_system_duration=timedelta(seconds=1))
    windower = win.TumblingWindower(
        length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=timezone.utc)
    )
    summed = win.fold_window(
        "sum", keyed, clock, windower, lambda: 0, lambda total, row: total + row[2], lambda a, b: a + b
    )
    op.output("out", summed.down, TestingSink(out))

    def run() -> object:
        bytewax_run(flow)
        return sum(total for _, (_, total) in out), len(out)

    return timed(run)


def pathway_rows(table: Any, names: list[str]) -> Any:
    import pathway as pw

    kinds = {"word": str, "k": int, "x": int, "ts": int}
    columns = {name: table[name] for name in names}
    if "ts" in columns:
        columns["ts"] = columns["ts"].cast("int64")
    rows = list(zip(*(column.to_pylist() for column in columns.values())))
    schema = pw.schema_from_types(**{name: kinds[name] for name in names})

    class Rows(pw.io.python.ConnectorSubject):
        def run(self) -> None:
            for row in rows:
                self.next(**dict(zip(names, row)))

    return pw.io.python.read(Rows(), schema=schema, autocommit_duration_ms=100)


def pathway_words(table: Any) -> Measured:
    import pathway as pw

    counts: dict[str, int] = {}

    def change(key: object, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            counts[row["word"]] = row["n"]

    words = pathway_rows(table, ["word"])
    pw.io.subscribe(words.groupby(words.word).reduce(words.word, n=pw.reducers.count()), on_change=change)

    def run() -> object:
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return sum(counts.values()), len(counts)

    return timed(run)


def pathway_windows(table: Any) -> Measured:
    import pathway as pw

    sums: dict[Any, int] = {}

    def change(key: object, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            sums[row["k"], row["start"]] = row["s"]

    rows = pathway_rows(table, ["ts", "k", "x"])
    windowed = rows.windowby(rows.ts, window=pw.temporal.tumbling(duration=MINUTE_US), instance=rows.k)
    result = windowed.reduce(
        k=pw.this._pw_instance, start=pw.this._pw_window_start, s=pw.reducers.sum(pw.this.x)
    )
    pw.io.subscribe(result, on_change=change)

    def run() -> object:
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return sum(sums.values()), len(sums)

    return timed(run)


def polars_batch(table: Any) -> Measured:
    import polars as pl

    frame = pl.from_arrow(table.select(["ts", "k", "x"])).lazy()

    def run() -> object:
        windows = frame.group_by("k", pl.col("ts").dt.truncate("1m")).agg(pl.col("x").sum()).collect()
        return windows["x"].sum(), windows.height

    return timed(run)


def duckdb_batch(table: Any) -> Measured:
    import duckdb

    connection = duckdb.connect()
    connection.register("given", table.select(["ts", "k", "x"]))

    def run() -> object:
        query = "SELECT k, time_bucket(INTERVAL '1 minute', ts), SUM(x) AS s FROM given GROUP BY ALL"
        windows = connection.sql(query).to_arrow_table()
        import pyarrow.compute as pc

        return int(pc.sum(windows["s"]).as_py()), windows.num_rows

    return timed(run)


def function(kind: str) -> Callable[[Any], Measured]:
    """A query over `f` that computes x * 1.19 + 1 in SQL, over columns, or for each row."""

    def measured(table: Any) -> Measured:
        from typing import Annotated

        import pyarrow as pa
        import pyarrow.compute as pc

        import thalweg as tw

        def over_columns(x: pa.Array) -> Annotated[pa.Array, "DOUBLE"]:
            return pc.add(pc.multiply(x, 1.19), 1.0)

        def by_row(x: float) -> float:
            return x * 1.19 + 1.0

        over_columns.__annotations__ = {"x": pa.Array, "return": Annotated[pa.Array, "DOUBLE"]}
        by_row.__annotations__ = {"x": float, "return": float}
        db = tw.connect(workers=1)
        db.register_function(tw.udf(over_columns))
        db.register_function(tw.udf(rows=True)(by_row))
        call = {"sql": "f * CAST(1.19 AS DOUBLE) + CAST(1 AS DOUBLE)"}.get(kind, f"{kind}(f)")
        batches = table.select(["f"]).combine_chunks().to_batches(max_chunksize=8192)
        result = db.sql(f"SELECT SUM({call}) AS s FROM t", t=pa.Table.from_batches(batches))
        return timed(lambda: round(result.fetchall()[0][0], 3))

    return measured


WORKLOADS: dict[str, dict[str, Callable[[Any], Measured]]] = {
    "words": {"thalweg": thalweg_words, "bytewax": bytewax_words, "pathway": pathway_words},
    "windows": {"thalweg": thalweg_windows, "bytewax": bytewax_windows, "pathway": pathway_windows},
    "batch-windows": {"thalweg": thalweg_windows, "polars": polars_batch, "duckdb": duckdb_batch},
    "udf": {
        "thalweg sql": function("sql"),
        "thalweg columns": function("over_columns"),
        "thalweg rows": function("by_row"),
    },
}


def measure(workload: str, engine: str, count: int) -> None:
    """In a process of its own: one measurement as a line."""
    seconds, checksum = WORKLOADS[workload][engine](rows_of(count))
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = {"seconds": seconds, "checksum": checksum, "peak_mb": round(peak_kb / 1024)}
    print(json.dumps(line))


def asked(workload: str, engine: str, count: int) -> dict[str, Any] | None:
    command = [sys.executable, __file__, "--measure", workload, engine, "--rows", str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{workload}, {engine}: failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("engines", nargs="*")
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--measure", nargs=2)
    given = arguments.parse_args()
    if given.measure:
        return measure(*given.measure, given.rows)
    for workload, engines in WORKLOADS.items():
        names = [name for name in engines if not given.engines or name.split()[0] in given.engines]
        missing = [name for name in names if importlib.util.find_spec(name.split()[0]) is None]
        for name in missing:
            print(f"{workload}: {name} is not installed", file=sys.stderr)
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names if name not in missing}
        for _ in range(given.repeat):
            for name, lines in runs.items():
                line = asked(workload, name, given.rows)
                lines.extend([line] if line else [])
        for name, lines in runs.items():
            if not lines:
                continue
            rates = [given.rows / line["seconds"] for line in lines]
            figure = {
                "workload": workload,
                "engine": name,
                "rows": given.rows,
                "rows_per_second": round(statistics.median(rates)),
                "spread": [round(min(rates)), round(max(rates))],
                "peak_mb": max(line["peak_mb"] for line in lines),
                "checksum": lines[0]["checksum"],
            }
            print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
