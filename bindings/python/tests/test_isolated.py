"""Functions in processes of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import thalweg as tw

pa = pytest.importorskip("pyarrow")
functions = pytest.importorskip("isolated_functions")


@pytest.fixture
def db() -> tw.Connection:
    db = tw.connect()
    for name in ("twice", "process_of", "inverse", "slow", "large", "dies"):
        db.register_function(getattr(functions, name))
    return db


def test_whole_columns_go_to_processes_and_back(db):
    result = db.sql("SELECT twice(x) AS y FROM t", t=pa.table({"x": list(range(10_000))}))
    assert sorted(result.fetchall())[-1] == (19_998,)
    assert "python, processes of its own" in result.explain()


def test_rows_are_computed_in_another_process(db):
    rows = db.sql("SELECT process_of(x) AS p FROM t", t=pa.table({"x": [1, None]})).fetchall()
    assert rows[1] == (None,) and rows[0] != (os.getpid(),)


def test_an_exception_names_the_line_in_the_other_process(db):
    with pytest.raises(tw.FunctionError, match=r"ZeroDivisionError.*isolated_functions\.py:\d+") as raised:
        db.sql("SELECT inverse(x) AS y FROM t", t=pa.table({"x": [1, 0]})).fetchall()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert db.sql("SELECT inverse(4) AS y").fetchall() == [(0.25,)]


def test_a_function_that_takes_too_long_is_ended(db):
    begun = time.monotonic()
    with pytest.raises(tw.FunctionError, match="took longer than 0.3 s"):
        db.sql("SELECT slow(30) AS y").fetchall()
    assert time.monotonic() - begun < 10
    assert db.sql("SELECT slow(0) AS y").fetchall() == [(0,)]


def test_a_function_that_takes_too_much_memory_fails(db):
    assert db.sql("SELECT large(1000) AS y").fetchall() == [(1000,)]
    with pytest.raises(tw.FunctionError, match="MemoryError"):
        db.sql("SELECT large(1000000000) AS y").fetchall()


def test_a_process_that_dies_fails_the_query_alone(db):
    with pytest.raises(tw.FunctionError, match="has ended with status 3"):
        db.sql("SELECT dies(1) AS y").fetchall()
    assert db.sql("SELECT 1 AS y").fetchall() == [(1,)]


def test_nothing_is_left_in_shared_memory(db):
    db.sql("SELECT twice(x) AS y FROM t", t=pa.table({"x": list(range(5_000))})).fetchall()
    shared = Path("/dev/shm")
    assert not shared.is_dir() or not list(shared.glob("thalweg-*.arrow"))


def test_a_function_that_no_module_has_needs_cloudpickle(db):
    @tw.udf(rows=True, isolated=True)
    def local(x: int) -> int:
        return x + 1

    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        with pytest.raises(TypeError, match="cloudpickle"):
            db.register_function(local)
    else:
        db.register_function(local)
        assert db.sql("SELECT local(1) AS y").fetchall() == [(2,)]


def test_limits_without_isolation_are_refused():
    with pytest.raises(TypeError, match="isolated=True"):
        tw.udf(rows=True, time_limit="1 s")(lambda x: x)
