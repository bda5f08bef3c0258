#!/usr/bin/env python3
"""Reads messages of Protocol Buffers and writes them again with Google's library, for tests.

Usage: protobuf_oracle.py DESCRIPTORS MESSAGE < RECORDS

DESCRIPTORS is a file with a FileDescriptorSet, MESSAGE the full name of one of its messages. Each
record of RECORDS has its length in four bytes before it, the highest first, and so has each that is
written. One that cannot be read is answered by the length 2^32 - 1 alone. Fields that the message
does not declare are left out.
"""

import struct
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

UNREADABLE = struct.pack(">I", 0xFFFFFFFF)


def message_class(path, name):
    """The class of a message that a file of descriptors has."""
    descriptors = descriptor_pb2.FileDescriptorSet()
    with open(path, "rb") as file:
        descriptors.ParseFromString(file.read())
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def main():
    """Reads each record and writes its values again, maps in the order of their keys."""
    kind = message_class(*sys.argv[1:3])
    while head := sys.stdin.buffer.read(4):
        record = sys.stdin.buffer.read(struct.unpack(">I", head)[0])
        value = kind()
        try:
            value.ParseFromString(record)
        except message.DecodeError:
            sys.stdout.buffer.write(UNREADABLE)
            continue
        value.DiscardUnknownFields()
        out = value.SerializeToString(deterministic=True)
        sys.stdout.buffer.write(struct.pack(">I", len(out)) + out)


if __name__ == "__main__":
    main()
