"""Functions of Python in statements."""

from __future__ import annotations

import datetime
import decimal
import threading
import time
import traceback
from typing import Annotated

import pytest

import thalweg as tw

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def db() -> tw.Connection:
    return tw.connect()


def test_a_function_over_columns_of_pyarrow(db):
    import pyarrow.compute as pc

    @tw.udf
    def vat(amount: pa.Array, country: pa.Array) -> Annotated[pa.Array, pa.float64()]:
        return pc.multiply(amount, pc.if_else(pc.equal(country, "DE"), 0.19, 0.2))

    db.register_function(vat)
    table = pa.table({"amount": [100.0, 200.0], "country": ["DE", "FR"]})
    rows = db.sql("SELECT vat(amount, country) AS v FROM t", t=table).fetchall()
    assert rows == [(19.0,), (40.0,)]
    assert vat(pa.array([100.0]), pa.array(["DE"])).to_pylist() == [19.0]


def test_a_function_over_columns_of_polars(db):
    pl = pytest.importorskip("polars")

    def shout(word: pl.Series) -> Annotated[pl.Series, pl.String]:
        return word.str.to_uppercase() + "!"

    shout.__annotations__ = {"word": pl.Series, "return": Annotated[pl.Series, pl.String]}
    db.register_function(shout)
    assert db.sql("SELECT shout(w) AS s FROM t", t=pa.table({"w": ["a", None]})).fetchall() == [("A!",), (None,)]


def test_a_function_over_columns_of_numpy(db):
    np = pytest.importorskip("numpy")

    @tw.udf(result="DOUBLE")
    def root(x: np.ndarray) -> np.ndarray:
        return np.sqrt(x)

    root.__wrapped__.__annotations__ = {"x": np.ndarray, "return": np.ndarray}
    db.register_function(root)
    assert db.sql("SELECT root(x) AS r FROM t", t=pa.table({"x": [4.0, 9.0]})).fetchall() == [(2.0,), (3.0,)]


def test_a_function_that_is_called_for_each_row(db):
    @tw.udf(rows=True)
    def host(url: str) -> str | None:
        return url.split("/")[2] if "//" in url else None

    db.register_function(host)
    table = pa.table({"url": ["http://a.b/c", "nothing", None]})
    assert db.sql("SELECT host(url) AS h FROM t", t=table).fetchall() == [("a.b",), (None,), (None,)]


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (bool, True),
        (int, 2**40),
        (float, 0.5),
        (str, "ä" * 20),
        (bytes, b"\0"),
        (datetime.date, datetime.date(1969, 12, 31)),
        (datetime.time, datetime.time(1, 2, 3, 4000)),
        (datetime.datetime, datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        (list[int], [1, None]),
        (Annotated[decimal.Decimal, "DECIMAL(10, 2)"], decimal.Decimal("-1.25")),
        (Annotated[tuple, "ROW<a INT, b STRING>"], {"a": 1, "b": "x"}),
    ],
)
def test_values_come_back_as_the_hint_says(db, hint, value):
    def same():
        return value

    same.__annotations__ = {"return": hint}
    db.register_function(tw.udf(rows=True)(same))
    assert db.sql("SELECT same() AS v").fetchall() == [(value,)]


def test_none_for_an_argument_only_where_the_hint_says_so(db):
    @tw.udf(rows=True)
    def size(text: str | None) -> int:
        return -1 if text is None else len(text)

    db.register_function(size)
    assert db.sql("SELECT size(s) AS n FROM t", t=pa.table({"s": ["ab", None]})).fetchall() == [(2,), (-1,)]


def test_types_are_checked_when_a_function_is_registered(db):
    def plain(x: int) -> int:
        return x

    def untyped(x: pa.Array) -> pa.Array:
        return x

    def unknown(x: complex) -> int:
        return 1

    def nothing(x: int):
        return x

    with pytest.raises(TypeError, match="rows=True"):
        db.register_function(plain)
    with pytest.raises(TypeError, match="Annotated"):
        db.register_function(untyped)
    with pytest.raises(TypeError, match="complex has no type in SQL"):
        db.register_function(tw.udf(rows=True)(unknown))
    with pytest.raises(TypeError, match="the type of the result is missing"):
        db.register_function(tw.udf(rows=True)(nothing))
    with pytest.raises(tw.SqlError, match="no type of SQL"):
        db.register_function(tw.udf(rows=True, result="NUMBER")(nothing))


def test_arguments_are_cast_as_for_any_function(db):
    @tw.udf(rows=True)
    def half(x: float) -> float:
        return x / 2

    db.register_function(half)
    assert db.sql("SELECT half(3) AS h").fetchall() == [(1.5,)]
    with pytest.raises(tw.SqlError, match="half"):
        db.sql("SELECT half('x')")


def test_an_exception_names_the_line_and_the_row(db):
    @tw.udf(rows=True)
    def inverse(x: int) -> float:
        return 1 / x  # the line that fails

    db.register_function(inverse)
    with pytest.raises(tw.FunctionError) as raised:
        db.sql("SELECT inverse(x) AS y FROM t", t=pa.table({"x": [1, 0]})).fetchall()
    error = raised.value
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "called with (0)" in error.message
    place = traceback.extract_tb(error.__cause__.__traceback__)[-1]
    assert place.line == "return 1 / x  # the line that fails"
    assert f"{__file__}:{place.lineno}" in error.message


def test_a_result_that_is_not_what_was_declared_is_refused(db):
    @tw.udf
    def short(x: pa.Array) -> Annotated[pa.Array, "BIGINT"]:
        return x.slice(1)

    @tw.udf
    def other(x: pa.Array) -> Annotated[pa.Array, "BIGINT"]:
        return x.cast(pa.int32())

    @tw.udf(rows=True)
    def text(x: int) -> int:
        return str(x)  # type: ignore[return-value]

    @tw.udf(rows=True)
    def nothing(x: int) -> int:
        return None  # type: ignore[return-value]

    table = pa.table({"x": [1, 2]})
    for function, message in [
        (short, "returned 1 values for 2 rows"),
        (other, "returned INT where BIGINT is declared"),
        (text, "returned '1' where BIGINT is declared.*called with"),
        (nothing, "returned None"),
    ]:
        db.register_function(function)
        with pytest.raises(tw.FunctionError, match=message):
            db.sql(f"SELECT {function.name}(x) AS y FROM t", t=table).fetchall()


def test_explain_marks_functions_by_how_they_run(db):
    @tw.udf(rows=True)
    def slow(x: int) -> int:
        return x

    @tw.udf
    def fast(x: pa.Array) -> Annotated[pa.Array, "BIGINT"]:
        return x

    db.register_function(slow)
    db.register_function(fast)
    table = pa.table({"x": [1]})
    assert "python, row by row" in db.sql("SELECT slow(x) AS y FROM t", t=table).explain()
    plan = db.sql("SELECT fast(x) AS y FROM t WHERE x > 0", t=table).explain()
    assert "python, whole columns" in plan and "row by row" not in plan


def test_what_a_condition_leaves_out_is_not_called(db):
    seen = []

    @tw.udf(rows=True)
    def note(x: int) -> int:
        seen.append(x)
        return x

    db.register_function(note)
    table = pa.table({"x": [1, 2, 3]})
    db.sql("SELECT note(x) AS y FROM t WHERE x > 1", t=table).fetchall()
    assert seen == [2, 3]
    seen.clear()
    db.sql("SELECT CASE WHEN x = 1 THEN note(x) ELSE 0 END AS y FROM t", t=table).fetchall()
    assert seen == [1]


def test_functions_work_in_conditions_and_aggregates(db):
    @tw.udf(rows=True)
    def odd(x: int) -> bool:
        return x % 2 == 1

    @tw.udf
    def twice(x: pa.Array) -> Annotated[pa.Array, "BIGINT"]:
        import pyarrow.compute as pc

        return pc.multiply(x, 2)

    db.register_function(odd)
    db.register_function(twice)
    table = pa.table({"x": list(range(10))})
    query = "SELECT odd(x) AS o, SUM(twice(x)) AS s FROM t WHERE odd(x + 1) GROUP BY odd(x)"
    assert db.sql(query, t=table).fetchall() == [(False, 40)]


def test_a_slow_function_holds_up_nobody_else(db):
    """A query of one worker runs while another one's function waits."""
    release = threading.Event()

    @tw.udf(rows=True)
    def wait(x: int) -> int:
        release.wait(20)
        return x

    db.register_function(wait)
    table = pa.table({"x": [1]})
    waiting = threading.Thread(target=lambda: db.sql("SELECT wait(x) AS y FROM t", t=table).fetchall())
    waiting.start()
    time.sleep(0.2)
    assert db.sql("SELECT x FROM t", t=table).fetchall() == [(1,)]
    assert waiting.is_alive()
    release.set()
    waiting.join()


def test_a_function_is_called_by_no_thread_of_a_worker(db):
    names = set()

    @tw.udf(rows=True)
    def where(x: int) -> int:
        names.add(threading.get_native_id())
        return x

    db.register_function(where, "spot")
    table = pa.table({"x": list(range(50_000))})
    db.sql("SELECT spot(x) AS y FROM t", t=table).fetchall()
    # With the interpreter's lock there is one lane.
    assert len(names) == 1
