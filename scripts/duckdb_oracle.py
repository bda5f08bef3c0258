#!/usr/bin/env python3
"""Answers queries over a CSV file by DuckDB, for tests that compare with it.

Usage: duckdb_oracle.py FILE.csv < QUERIES

FILE.csv has no header and the columns ts, k, v, d. QUERIES are separated by lines that hold only
"--". The answers are CSV without header, NULL as \\N, separated in the same way.
"""

import csv
import sys

import duckdb

TABLE = """
CREATE TABLE t AS SELECT *, epoch_ms(ts) AS ms FROM read_csv(?, header = false, nullstr = '',
    columns = {'ts': 'TIMESTAMP', 'k': 'VARCHAR', 'v': 'BIGINT', 'd': 'DOUBLE'})
"""


def main():
    """Reads the queries, then answers each."""
    connection = duckdb.connect()
    connection.execute(TABLE, [sys.argv[1]])
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for position, query in enumerate(sys.stdin.read().split("\n--\n")):
        if position > 0:
            print("--")
        for row in connection.execute(query).fetchall():
            writer.writerow(["\\N" if value is None else value for value in row])


if __name__ == "__main__":
    main()
