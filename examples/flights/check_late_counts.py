#!/usr/bin/env python3
"""Counts late rows of departures.parquet one row at a time, as the written rule says.

Watermark t promises that no later row has a time at or before t. A row is late for its hour when
the watermark that the rows BEFORE it established is at or after the hour's end minus 1 ms. The
numbers depend on the data alone; the engine's tests compare with the same table. Where nothing is
late, the worst hours are computed by DuckDB in batch.

    /tmp/venv/bin/pip install pyarrow duckdb
    /tmp/venv/bin/python examples/flights/check_late_counts.py
"""

import pathlib
import sys

import duckdb
import pyarrow.parquet as pq

MINUTE = 60_000
HOUR = 60 * MINUTE
FILE = pathlib.Path(__file__).resolve().parent / "departures.parquet"

# wait: (late rows for departed - wait, late rows for sched - wait)
EXPECTED = {
    0: (53_548, 75_629),
    15 * MINUTE: (36_425, 38_920),
    30 * MINUTE: (26_924, 29_021),
    1 * HOUR: (15_710, 15_893),
    2 * HOUR: (5_988, 5_360),
    3 * HOUR: (2_314, 1_946),
    6 * HOUR: (153, 117),
    12 * HOUR: (27, 28),
    24 * HOUR: (0, 0),
}
WINDOWS_EXPECTED = {HOUR: 19_404, 24 * HOUR: 19_434}
WORST_ALL = [
    ("LGA", "2013-09-02 16:00:00", 250.3, 13),
    ("LGA", "2013-07-28 19:00:00", 239.5, 14),
    ("EWR", "2013-03-08 12:00:00", 224.8, 10),
]
WORST_ONE_HOUR = [("EWR", "2013-12-17 19:00:00", 69.2, 12)]


def accepted(times, clock, wait):
    """True for each row that is not late, with the running watermark `clock - wait`."""
    newest = None
    marks = []
    for time, tick in zip(times, clock):
        end = time - time % HOUR + HOUR
        marks.append(newest is None or not (end - 1 <= newest - wait))
        newest = tick if newest is None else max(newest, tick)
    return marks


def worst_hours(table, limit):
    """The worst (origin, hour) pairs of the given rows, by DuckDB."""
    query = """
        SELECT origin, strftime(date_trunc('hour', sched), '%Y-%m-%d %H:%M:%S') AS hour,
               round(avg(delay), 1) AS mean_delay, count(*) AS flights
        FROM rows GROUP BY ALL HAVING count(*) >= 10 ORDER BY avg(delay) DESC LIMIT ?"""
    connection = duckdb.connect()
    connection.register("rows", table)
    return connection.execute(query, [limit]).fetchall()


def main():
    """Compares every number and says which are wrong."""
    table = pq.read_table(FILE)
    departed = table["departed"].cast("int64").to_pylist()
    sched = table["sched"].cast("int64").to_pylist()
    origin = table["origin"].to_pylist()
    wrong = 0

    def check(what, got, want):
        nonlocal wrong
        wrong += got != want
        print(f"{'ok' if got == want else 'WRONG'}  {what}: {got}" + ("" if got == want else f", expected {want}"))

    check("rows", table.num_rows, 328_521)
    for wait, expected in EXPECTED.items():
        for name, clock, want in zip(("departed", "sched"), (departed, sched), expected):
            marks = accepted(sched, clock, wait)
            check(f"late rows, {name} - {wait // MINUTE} min", marks.count(False), want)
            if name == "departed" and wait in WINDOWS_EXPECTED:
                windows = {(o, t // HOUR) for o, t, ok in zip(origin, sched, marks) if ok}
                check(f"windows, {name} - {wait // MINUTE} min", len(windows), WINDOWS_EXPECTED[wait])
    check("worst hours of all rows", worst_hours(table, 3), WORST_ALL)
    on_time = table.filter(accepted(sched, departed, HOUR))
    check("worst hour at departed - 60 min", worst_hours(on_time, 1), WORST_ONE_HOUR)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
