"""Tables of Python go in, results come out: what is copied, what is converted, what is refused."""

from __future__ import annotations

import datetime
import decimal
import sys

import pytest

import thalweg as tw

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def db() -> tw.Connection:
    return tw.connect()


def test_a_query_reads_an_arrow_table_and_returns_one(db):
    orders = pa.table({"item": ["tea", "milk", "tea"], "amount": [2, 5, 3]})
    result = db.sql("SELECT item, amount * 10 AS tens FROM orders WHERE amount > 2", orders=orders)
    assert result.schema == [("item", "STRING"), ("tens", "BIGINT")]
    assert result.arrow().to_pylist() == [{"item": "milk", "tens": 50}, {"item": "tea", "tens": 30}]
    assert result.fetchall() == [("milk", 50), ("tea", 30)]


def test_columns_go_through_without_a_copy(db):
    numbers = pa.array(range(1_000), pa.int64())
    floats = pa.array([float(n) for n in range(1_000)], pa.float64())
    result = db.sql("SELECT n, f FROM t", t=pa.table({"n": numbers, "f": floats})).arrow()
    for name, given in [("n", numbers), ("f", floats)]:
        first = result.column(name).chunk(0)
        given_at = given.buffers()[1].address
        assert first.buffers()[1].address + first.offset * 8 == given_at


def test_bytes_of_texts_are_not_copied(db):
    texts = pa.array([f"a text of more than twelve bytes {n}" for n in range(100)], pa.string_view())
    result = db.sql("SELECT s FROM t", t=pa.table({"s": texts})).arrow()
    given = {buffer.address for buffer in texts.buffers()[2:]}
    returned = {buffer.address for buffer in result.column("s").chunk(0).buffers()[2:] if buffer}
    assert returned <= given and returned


def test_values_of_each_type_come_back_as_they_were(db):
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901)
    instant = at.replace(tzinfo=datetime.timezone.utc)
    values = {
        "flag": pa.array([True, None]),
        "small": pa.array([1, None], pa.int8()),
        "unsigned": pa.array([255, None], pa.uint8()),
        "number": pa.array([-5, None], pa.int32()),
        "float": pa.array([0.5, None], pa.float32()),
        "text": pa.array(["ä", None], pa.large_string()),
        "bytes": pa.array([b"\0x", None], pa.binary()),
        "money": pa.array([decimal.Decimal("1.20"), None], pa.decimal128(10, 2)),
        "day": pa.array([at.date(), None]),
        "clock": pa.array([datetime.time(1, 2, 3), None], pa.time64("us")),
        "at": pa.array([at, None], pa.timestamp("us")),
        "instant": pa.array([instant, None], pa.timestamp("us", "Europe/Paris")),
        "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "row": pa.array([{"a": 1, "b": "x"}, None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "word": pa.array(["x", None]).dictionary_encode(),
    }
    rows = db.sql("SELECT * FROM t", t=pa.table(values)).fetchall()
    assert rows[0] == (
        True, 1, 255, -5, 0.5, "ä", b"\0x", decimal.Decimal("1.20"), at.date(), datetime.time(1, 2, 3),
        at, instant, [1, None], {"a": 1, "b": "x"}, {"k": 1}, "x",
    )  # fmt: skip
    assert rows[1] == (None,) * len(values)


def test_a_registered_table_is_there_for_all_later_statements(db):
    db.register("rates", pa.table({"code": ["EUR"], "rate": [1.1]}))
    assert db.sql("SELECT rate FROM rates").fetchall() == [(1.1,)]
    db.register("rates", pa.table({"code": ["EUR", "GBP"]}))
    assert len(db.sql("SELECT code FROM rates").fetchall()) == 2


def test_a_table_by_keyword_is_there_for_its_query_alone(db):
    db.sql("SELECT n FROM t", t=pa.table({"n": [1]})).fetchall()
    with pytest.raises(tw.SqlError, match="t"):
        db.sql("SELECT n FROM t")


def test_a_callable_is_read_anew_by_each_query(db):
    calls = []

    def table():
        calls.append(1)
        return pa.RecordBatchReader.from_batches(
            pa.schema([("n", pa.int64())]),
            (pa.record_batch({"n": [start, start + 1]}) for start in range(0, 10, 2)),
        )

    db.register("t", table)
    for _ in range(2):
        assert db.sql("SELECT SUM(n) AS n FROM t").fetchall() == [(45,)]
    assert len(calls) >= 3


def test_windows_need_a_row_time(db):
    start = datetime.datetime(2026, 1, 1)
    orders = pa.table(
        {
            "ts": pa.array([start + datetime.timedelta(minutes=m) for m in (1, 30, 61)], pa.timestamp("us")),
            "amount": [1, 2, 4],
        }
    )
    query = (
        "SELECT window_start, SUM(amount) AS total "
        "FROM TUMBLE(orders, ts, INTERVAL '1' HOUR) GROUP BY window_start, window_end"
    )
    rows = db.sql(query, orders=tw.stream(orders, rowtime="ts", delay="5 s")).fetchall()
    assert [total for _, total in rows] == [3, 4]
    with pytest.raises(tw.SqlError):
        db.sql(query, orders=orders)


def test_a_result_that_is_updated_is_shown_as_it_is_at_the_end(db):
    table = pa.table({"k": ["a", "b", "a"]})
    result = db.sql("SELECT k, COUNT(*) AS n FROM t GROUP BY k", t=table)
    assert sorted(result.fetchall()) == [("a", 2), ("b", 1)]
    kinds = [kind for batch in result.changes() for kind in batch.kinds]
    assert kinds.count("+I") == 2


def test_an_endless_result_that_is_updated_has_changes_alone(db):
    db.sql("CREATE TABLE ticks (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000')")
    result = db.sql("SELECT n, COUNT(*) AS c FROM ticks GROUP BY n")
    with pytest.raises(tw.SqlError, match="changes"):
        list(result)
    assert next(iter(result.changes())).num_rows > 0


def test_params_are_literals(db):
    given = {"word": "it's", "n": 3, "day": datetime.date(2026, 1, 2), "none": None, "x": 1.5}
    row = db.sql("SELECT ${word} AS w, ${n} + 1 AS n, ${day} AS d, ${x} AS x", params=given).fetchall()[0]
    assert row == ("it's", 4, datetime.date(2026, 1, 2), 1.5)
    with pytest.raises(tw.SqlError, match="no value"):
        db.sql("SELECT ${m}", params={"n": 1})


def test_batches_come_while_the_query_runs(db):
    db.sql("CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000')")
    batches = iter(db.sql("SELECT n FROM ticks"))
    assert next(batches).num_rows > 0
    batches.close()


def test_a_result_is_read_by_an_async_loop(db):
    import asyncio

    async def total() -> int:
        return sum([batch.num_rows async for batch in db.sql("SELECT n FROM t", t=pa.table({"n": [1, 2]}))])

    assert asyncio.run(total()) == 2


def test_the_repr_shows_the_schema_and_runs_nothing(db):
    result = db.sql("SELECT n FROM t", t=pa.table({"n": [1]}))
    assert repr(result) == "<thalweg.Result (n BIGINT)>"
    assert "<td>1</td>" in result._repr_html_()


def test_what_is_no_table_is_refused_with_its_name(db):
    with pytest.raises(TypeError, match="table t: list"):
        db.sql("SELECT 1", t=[1, 2])


def test_statements_before_the_query_are_executed(db):
    rows = db.sql("CREATE VIEW v AS SELECT 1 AS n;\n SELECT n + 1 AS n FROM v").fetchall()
    assert rows == [(2,)]
    assert db.sql("SHOW VIEWS").fetchall()


def test_polars_goes_in_and_out(db):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"n": [1, 2, 3], "s": ["a", "b", None]})
    assert db.sql("SELECT n, s FROM t WHERE n > 1", t=frame).pl().equals(frame.filter(pl.col("n") > 1))
    assert pl.DataFrame(db.sql("SELECT n FROM t", t=frame))["n"].sum() == 6


def test_pandas_goes_in_and_out(db):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": [1, 2, 3]})
    assert list(db.sql("SELECT n * 2 AS n FROM t", t=frame).df()["n"]) == [2, 4, 6]


def test_duckdb_goes_in_and_out(db):
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql("SELECT 21 AS n")
    result = db.sql("SELECT n * 2 AS n FROM t", t=relation)
    assert duckdb.sql("SELECT n FROM result").fetchall() == [(42,)] or result.fetchall() == [(42,)]


def test_a_file_runs_with_paths_from_its_folder(tmp_path, monkeypatch):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "in.csv").write_text("1\n2\n3\n")
    (tmp_path / "jobs" / "sum.sql").write_text(
        "CREATE TABLE t (n INT) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv');"
        "CREATE TABLE o (n INT) WITH ('connector' = 'filesystem', 'path' = 'out.csv', 'format' = 'csv');"
        "INSERT INTO o SELECT n FROM t WHERE n > ${least};"
        "SELECT SUM(n) AS total FROM t;"
    )
    monkeypatch.chdir(tmp_path)
    assert tw.run("jobs/sum.sql", params={"least": 1}).fetchall() == [(6,)]
    assert sorted((tmp_path / "jobs" / "out.csv").read_text().split()) == ["2", "3"]


def test_a_mistake_in_a_file_names_the_file(tmp_path):
    (tmp_path / "wrong.sql").write_text("SELECT\n  x")
    with pytest.raises(tw.SqlError) as raised:
        tw.run(tmp_path / "wrong.sql")
    assert raised.value.line == 2
    if sys.version_info >= (3, 11):
        assert raised.value.__notes__ == [f"in {tmp_path / 'wrong.sql'}"]


def test_part_of_a_batch_shares_its_rows():
    result = tw.connect().sql("SELECT n FROM (VALUES (1), (2), (3)) AS t (n)")
    (batch,) = result
    rows = batch.fetchall()
    assert batch.slice(1).fetchall() == rows[1:] and batch.slice(0, 2).fetchall() == rows[:2]
    assert batch.slice(2, 9).kinds == ["+I"] and len(batch.slice(7)) == 0
