"""Functions that `test_isolated` runs in processes of their own: they find them here."""

from __future__ import annotations

import os
import time
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

import thalweg as tw


@tw.udf(isolated=True, processes=2)
def twice(x: pa.Array) -> Annotated[pa.Array, pa.int64()]:
    return pc.multiply(x, 2)


@tw.udf(rows=True, isolated=True)
def process_of(x: int) -> int:
    return os.getpid()


@tw.udf(rows=True, isolated=True)
def inverse(x: int) -> float:
    return 1 / x


@tw.udf(rows=True, isolated=True, time_limit="300 ms")
def slow(x: int) -> int:
    time.sleep(x)
    return x


@tw.udf(rows=True, isolated=True, memory_limit="200mb")
def large(x: int) -> int:
    return len(bytearray(x))


@tw.udf(rows=True, isolated=True)
def dies(x: int) -> int:
    os._exit(3)
