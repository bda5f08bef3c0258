#!/usr/bin/env python3
"""Answers queries over Parquet files by DuckDB, for tests that compare with it.

Usage: duckdb_answers.py QUERIES.sql FOLDER

Every FOLDER/NAME.parquet is a table NAME, with the position of each row as `seq`. In QUERIES.sql a
line "-- NAME" goes before each query; what stands before the first one is passed over. The answer
to it is written to FOLDER/NAME.answer: CSV without header, NULL as \\N, times to the millisecond.
"""

import csv
import datetime
import pathlib
import re
import sys

import duckdb


def text(value):
    """A value as the engine prints it."""
    if value is None:
        return "\\N"
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return value


def main():
    """Loads the tables, then answers each query."""
    queries, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    connection = duckdb.connect()
    for file in folder.glob("*.parquet"):
        columns = "* EXCLUDE (file_row_number), file_row_number AS seq"
        source = f"read_parquet('{file}', file_row_number = true)"
        connection.execute(f"CREATE TABLE {file.stem} AS SELECT {columns} FROM {source}")
    parts = re.split(r"^-- (\w+)$", queries.read_text(), flags=re.MULTILINE)
    for name, query in zip(parts[1::2], parts[2::2]):
        with open(folder / f"{name}.answer", "w", encoding="utf-8") as answer:
            writer = csv.writer(answer, lineterminator="\n")
            cursor = connection.execute(query)
            while rows := cursor.fetchmany(10_000):
                writer.writerows([text(value) for value in row] for row in rows)


if __name__ == "__main__":
    main()
