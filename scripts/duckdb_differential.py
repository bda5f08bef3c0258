#!/usr/bin/env python3
"""Answers statements by DuckDB one after the other, for the differential test.

Usage: duckdb_differential.py < STATEMENTS

Each line holds statements that end with ";". The answer to a line is the rows of its last statement,
one a line with tabs between the values, then a line "." or, where DuckDB refused, "!" and why. NULL
is \\N, and times have three digits behind the second, as Thalweg prints them.
"""

import datetime
import sys

import duckdb


def text(value):
    """A value as Thalweg prints it."""
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03}"
    return f"{value:f}" if hasattr(value, "as_tuple") else str(value)


def main():
    """Answers until there are no more lines."""
    connection = duckdb.connect(config={"threads": 1})
    # DuckDB 2.0.0 takes NULLIF(f, 'x') LIKE 'x%' for "f IS NOT NULL" where all values of f begin so.
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")
    for line in sys.stdin:
        try:
            rows = connection.execute(line).fetchall()
            for row in rows:
                print("\t".join(text(value) for value in row))
            print(".", flush=True)
        except duckdb.Error as error:
            print("!" + str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
