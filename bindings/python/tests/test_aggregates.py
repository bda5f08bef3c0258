"""Aggregate functions and table functions of Python."""

from __future__ import annotations

import dataclasses
import datetime
import statistics
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import pytest

import thalweg as tw

pa = pytest.importorskip("pyarrow")

TABLE = pa.table({"k": ["a", "b", "a", "a", "b"], "x": [1.0, 5.0, 3.0, 2.0, 7.0], "w": [1, 1, 2, 3, 1]})


@tw.udaf
def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


@tw.udaf
def middle(values: pa.Array) -> float:
    return statistics.median(values.to_pylist())


@tw.udaf
def weighted(values: list[float], weights: list[int]) -> float:
    return sum(v * w for v, w in zip(values, weights)) / sum(weights)


@tw.udaf
class Spread:
    """The greatest value minus the least, for all groups at once."""

    def update(self, groups: pa.Array, values: pa.Array) -> None:
        self.ranges = pa.table({"g": groups, "x": values}).group_by("g").aggregate([("x", "min"), ("x", "max")])

    def finish(self, count: int) -> Annotated[pa.Array, pa.float64()]:
        spreads = [None] * count
        for row in self.ranges.to_pylist():
            spreads[row["g"]] = row["x_max"] - row["x_min"]
        return pa.array(spreads, pa.float64())


@pytest.fixture
def db() -> tw.Connection:
    db = tw.connect()
    for function in (median, middle, weighted, Spread):
        db.register_function(function)
    return db


def test_an_aggregate_takes_the_values_of_a_group(db):
    rows = db.sql("SELECT k, median(x) AS m, middle(x) AS n FROM t GROUP BY k", t=TABLE).fetchall()
    assert sorted(rows) == [("a", 2.0, 2.0), ("b", 6.0, 6.0)]
    assert median([1.0, 2.0]) == 1.5


def test_an_aggregate_takes_several_arguments(db):
    rows = db.sql("SELECT k, weighted(x, w) AS m FROM t GROUP BY k", t=TABLE).fetchall()
    assert sorted(rows) == [("a", (1 + 6 + 6) / 6), ("b", 6.0)]


def test_an_aggregate_takes_series_of_polars(db):
    pl = pytest.importorskip("polars")

    def total(x: pl.Series, w: pl.Series) -> float:
        return float((x * w).sum())

    total.__annotations__ = {"x": pl.Series, "w": pl.Series, "return": float}
    db.register_function(tw.udaf(total))
    rows = db.sql("SELECT k, total(x, w) AS m FROM t GROUP BY k", t=TABLE).fetchall()
    assert sorted(rows) == [("a", 13.0), ("b", 12.0)]


def test_a_class_takes_the_values_of_all_groups_at_once(db):
    rows = db.sql("SELECT k, Spread(x) AS s FROM t GROUP BY k", t=TABLE).fetchall()
    assert sorted(rows) == [("a", 2.0), ("b", 2.0)]


def test_filter_distinct_and_expressions_around_work_as_for_other_aggregates(db):
    query = """SELECT k, median(x) FILTER (WHERE x > 1) + 1 AS m, COUNT(*) AS n, median(DISTINCT w) AS d
               FROM t GROUP BY k"""
    rows = db.sql(query, t=TABLE).fetchall()
    assert sorted(rows) == [("a", 3.5, 3, 2.0), ("b", 7.0, 2, 1.0)]


def test_an_aggregate_of_no_rows_may_be_none(db):
    assert db.sql("SELECT median(x) AS m FROM t WHERE x > 100", t=TABLE).fetchall() == [(None,)]


def test_aggregates_per_window_and_with_changes(db):
    minute = datetime.timedelta(minutes=1)
    begin = datetime.datetime(2026, 1, 1, 9)
    table = pa.table({"ts": [begin + n * minute for n in (0, 10, 70)], "x": [1.0, 3.0, 9.0]})
    query = "SELECT window_start, median(x) AS m FROM TUMBLE(t, ts, INTERVAL '1' HOUR) GROUP BY window_start, window_end"
    rows = db.sql(query, t=tw.stream(table, rowtime="ts")).fetchall()
    assert rows == [(begin, 2.0), (begin + 60 * minute, 9.0)]
    changes = []
    for batch in db.sql("SELECT k, median(x) AS m FROM t GROUP BY k", t=TABLE).changes():
        changes += list(zip(batch.kinds, batch.fetchall()))
    last = {}
    for kind, (key, value) in changes:
        if kind in ("+I", "+U"):
            last[key] = value
    assert last == {"a": 2.0, "b": 6.0}


def test_hints_of_an_aggregate_are_checked(db):
    with pytest.raises(TypeError, match="the type of the result is missing"):

        @tw.udaf
        def untyped(values: list[float]): ...

        db.register_function(untyped)
    with pytest.raises(TypeError, match="takes the values of a group as"):

        @tw.udaf
        def single(value: float) -> float: ...

        db.register_function(single)
    with pytest.raises(TypeError, match="update.. and finish"):

        @tw.udaf
        class Nothing: ...

        db.register_function(Nothing)


def test_an_exception_of_an_aggregate_names_its_line(db):
    @tw.udaf
    def broken(values: list[float]) -> float:
        return values[100]

    db.register_function(broken)
    with pytest.raises(tw.FunctionError, match=r"IndexError.*test_aggregates\.py:\d+") as raised:
        db.sql("SELECT broken(x) AS b FROM t", t=TABLE).fetchall()
    assert isinstance(raised.value.__cause__, IndexError)


@tw.udtf
def words(line: str) -> Iterable[tw.Row[str, int]]:
    for word in line.split():
        yield word, len(word)


@dataclasses.dataclass
class Part:
    name: str
    place: int | None


class Pair(NamedTuple):
    left: str
    right: str


def test_a_table_function_makes_rows_of_a_row(db):
    db.register_function(words)
    lines = pa.table({"n": [1, 2, 3], "line": ["to be", "", "or"]})
    query = "SELECT n, word, length FROM lines CROSS JOIN LATERAL TABLE(words(line)) AS t (word, length)"
    assert db.sql(query, lines=lines).fetchall() == [(1, "to", 2), (1, "be", 2), (3, "or", 2)]
    query = "SELECT n, f0 FROM lines, LATERAL TABLE(words(line)) WHERE f1 = 2"
    assert db.sql(query, lines=lines).fetchall() == [(1, "to"), (1, "be"), (3, "or")]
    query = "SELECT n, word FROM lines LEFT JOIN LATERAL TABLE(words(line)) AS t (word, length) ON TRUE"
    assert db.sql(query, lines=lines).fetchall() == [(1, "to"), (1, "be"), (2, None), (3, "or")]
    assert db.sql("SELECT word FROM TABLE(words('a b')) AS t (word, n)").fetchall() == [("a",), ("b",)]


def test_rows_of_a_table_function_are_dataclasses_tuples_and_values(db):
    @tw.udtf
    def parts(text: str) -> list[Part]:
        return [Part(part, place if place else None) for place, part in enumerate(text.split("-"))]

    @tw.udtf
    def pairs(text: str) -> list[Pair]:
        return [Pair(text, text.upper())]

    @tw.udtf
    def letters(text: str) -> Iterable[str]:
        return text

    for function in (parts, pairs, letters):
        db.register_function(function)
    assert db.sql("SELECT name, place FROM TABLE(parts('a-b'))").fetchall() == [("a", None), ("b", 1)]
    assert db.sql("SELECT `left`, `right` FROM TABLE(pairs('a'))").fetchall() == [("a", "A")]
    assert db.sql("SELECT c FROM TABLE(letters('ab')) AS t (c)").fetchall() == [("a",), ("b",)]


def test_a_table_function_says_what_its_rows_are(db):
    @tw.udtf
    def plain(text: str) -> str: ...

    with pytest.raises(TypeError, match="a table function returns rows"):
        db.register_function(plain)


def test_functions_in_the_condition_of_a_join_run_in_lanes(db):
    @tw.udf(rows=True)
    def near(left: float, right: float) -> bool:
        return abs(left - right) <= 1

    @tw.udf(rows=True)
    def upper(text: str) -> str:
        return text.upper()

    db.register_function(near)
    db.register_function(upper)
    other = pa.table({"k": ["A", "B"], "y": [2.0, 7.5]})
    joined = db.sql("SELECT t.x, o.y FROM t JOIN o ON upper(t.k) = o.k AND near(t.x, o.y)", t=TABLE, o=other)
    assert sorted(joined.fetchall()) == [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (7.0, 7.5)]
    with pytest.raises(tw.SqlError, match="condition of a join") as raised:
        db.sql("SELECT t.x, o.y FROM t LEFT JOIN o ON upper(t.k) = o.k AND near(t.x, o.y)", t=TABLE, o=other).fetchall()
    assert "sub-query" in (raised.value.help or "")
