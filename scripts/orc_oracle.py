#!/usr/bin/env python3
"""Writes random rows as a file of ORC with pyarrow, and as lines of JSON, for tests of the reader.

Usage: orc_oracle.py ORC JSON SEED ROWS COMPRESSION
"""

import base64
import datetime
import decimal
import json
import random
import sys

import pyarrow
from pyarrow import orc

SCHEMA = pyarrow.schema([
    ("b", pyarrow.bool_()),
    ("t", pyarrow.int8()),
    ("s", pyarrow.int16()),
    ("i", pyarrow.int32()),
    ("l", pyarrow.int64()),
    ("f", pyarrow.float32()),
    ("d", pyarrow.float64()),
    ("str", pyarrow.string()),
    ("bin", pyarrow.binary()),
    ("dec", pyarrow.decimal128(12, 3)),
    ("day", pyarrow.date32()),
    ("ts", pyarrow.timestamp("us")),
    ("lz", pyarrow.timestamp("us", tz="UTC")),
    ("arr", pyarrow.list_(pyarrow.int32())),
    ("m", pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    ("r", pyarrow.struct([("x", pyarrow.int32()), ("y", pyarrow.string())])),
])
EPOCH = datetime.datetime(1970, 1, 1)


def nullable(source, value):
    """A value, or mostly not NULL."""
    return None if source.random() < 0.15 else value


def moment(source):
    """A time, which may be far from 1970. pyarrow writes fractions before 1970 as negative numbers,
    which the format has not."""
    seconds = source.choice([source.randrange(1, 2**32), -source.randrange(2**33), 253402214400])
    microseconds = source.randrange(1_000_000) if seconds > 0 else 0
    return EPOCH + datetime.timedelta(seconds=seconds, microseconds=microseconds)


def row(source):
    """Values of a row, in the order of the columns."""
    text = "".join(source.choice(["a", "é", "😀", "\n", '"', ""]) for _ in range(source.randrange(6)))
    values = [
        source.random() < 0.5,
        source.randrange(-128, 128),
        source.randrange(-2**15, 2**15),
        source.choice([7, source.randrange(-2**31, 2**31)]),
        source.choice([source.randrange(100), source.randrange(-2**63, 2**63)]),
        source.randrange(-1000, 1000) / 8,
        source.uniform(-1e9, 1e9),
        text,
        source.randbytes(source.randrange(5)),
        decimal.Decimal(source.randrange(-10**11, 10**11)).scaleb(-3),
        datetime.date(1970, 1, 1) + datetime.timedelta(days=source.randrange(-40_000, 60_000)),
        moment(source),
        moment(source).replace(tzinfo=datetime.timezone.utc),
        [nullable(source, source.randrange(100)) for _ in range(source.randrange(4))],
        [(f"k{n}", nullable(source, source.randrange(9))) for n in range(source.randrange(3))],
        {"x": nullable(source, source.randrange(9)), "y": nullable(source, text)},
    ]
    return [nullable(source, value) for value in values]


def shown(value):
    """A value as a line of JSON has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.datetime):
        zone = "Z" if value.tzinfo else ""
        return value.replace(tzinfo=None).isoformat(" ", "microseconds") + zone
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


def main():
    """Writes both files."""
    path, lines, seed, count, compression = sys.argv[1:]
    source = random.Random(int(seed))
    rows = [row(source) for _ in range(int(count))]
    columns = [pyarrow.array(column, kind) for column, kind in zip(zip(*rows), SCHEMA.types)]
    table = pyarrow.Table.from_arrays(columns, schema=SCHEMA)
    with orc.ORCWriter(path, compression=compression, stripe_size=1024, batch_size=64) as writer:
        # A stripe ends with a table, where it is full. Slices of ROWs would be written wrongly.
        for part in table.to_batches(max_chunksize=100):
            writer.write(pyarrow.Table.from_pylist(part.to_pylist(), SCHEMA))
    with open(lines, "w", encoding="utf-8") as out:
        for values in rows:
            named = zip(SCHEMA.names, values)
            members = {
                name: ({} if name == "m" and value == [] else shown(value)) for name, value in named
            }
            out.write(json.dumps(members) + "\n")


if __name__ == "__main__":
    main()
