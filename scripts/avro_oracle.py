#!/usr/bin/env python3
"""Reads Avro records and writes them again with fastavro, for tests that compare with it.

Usage: avro_oracle.py SCHEMA.json < RECORDS

Each record of RECORDS has its length in four bytes before it, the highest first, and so has each
that is written.
"""

import io
import json
import struct
import sys

import fastavro


def main():
    """Reads a record, checks that nothing is left of it, and writes its values again."""
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = fastavro.parse_schema(json.load(file))
    while head := sys.stdin.buffer.read(4):
        record = io.BytesIO(sys.stdin.buffer.read(struct.unpack(">I", head)[0]))
        value = fastavro.schemaless_reader(record, schema, None)
        assert not record.read(), f"bytes are left behind {value}"
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        sys.stdout.buffer.write(struct.pack(">I", len(out.getvalue())) + out.getvalue())


if __name__ == "__main__":
    main()
