"""Tests of SQL in Python, on the virtual clock."""

from __future__ import annotations

import datetime
import decimal
import time
from typing import Annotated

import pytest

import thalweg as tw

READINGS = """
CREATE TABLE readings (ts TIMESTAMP(3), meter STRING, used INT, WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'readings.csv');
CREATE TABLE per_minute (minute_start TIMESTAMP(3), meter STRING, used INT)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'per_minute.csv');
INSERT INTO per_minute
SELECT window_start, meter, SUM(used)
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, meter;
"""


def readings_of(t):
    readings = t.input("readings", "ts | meter | used")
    readings.push("2026-03-01 09:00:10 | north | 4")
    t.advance("1 min")
    readings.push((datetime.datetime(2026, 3, 1, 9, 2, 5), "north", 6), {"ts": "2026-03-01 09:00:15", "meter": "north", "used": 9})
    return readings


def test_rows_and_late_rows_are_what_is_expected():
    with tw.testing.case(READINGS, at="2026-03-01 09:00:12") as t:
        readings_of(t)
        t.expect(
            "per_minute",
            [(datetime.datetime(2026, 3, 1, 9, 0), "north", 4), (datetime.datetime(2026, 3, 1, 9, 2), "north", 6)],
            columns="minute_start | meter | used",
        )
        t.expect_late("ts | watermark\n2026-03-01 09:00:15 | 2026-03-01 09:01:05")
    report = t.check()
    assert report.variants == 4 and report.left_out == {}


def test_a_difference_is_an_assertion_error_that_shows_both_sides():
    with pytest.raises(AssertionError) as raised:
        with tw.testing.case(READINGS, order="epoch") as t:
            readings_of(t)
            t.expect("per_minute", [{"meter": "north", "used": 4}, {"meter": "north", "used": 7}])
    assert str(raised.value) == (
        "expect per_minute (order epoch, 1 worker): - expected, + found\n\n"
        "  | meter | used |\n  |-------|------|\n  | north | 4    |\n- | north | 7    |\n+ | north | 6    |"
    )


def test_an_exception_of_the_block_is_not_hidden_by_the_check():
    with pytest.raises(ZeroDivisionError):
        with tw.testing.case(READINGS) as t:
            t.expect("per_minute", "used\n1")
            1 / 0


CLICKS = """
CREATE TABLE clicks (ts TIMESTAMP(3), page STRING, WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen', 'rows-per-second' = '1');
SELECT page, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY page, window_start, window_end;
"""


def test_a_window_closes_where_a_watermark_passes_its_end():
    for watermark, expected in [("2026-01-01 09:59:00", []), ("2026-01-01 10:00:00", [("home", 1)])]:
        with tw.testing.case(CLICKS, at="2026-01-01 09:00") as t:
            clicks = t.input("clicks", ["ts", "page"])
            clicks.push(("2026-01-01 09:00:00", "home"))
            clicks.watermark(watermark)
            t.expect("result", expected, columns="page | n")


def test_the_watermark_waits_for_the_slowest_partition():
    with tw.testing.case(CLICKS) as t:
        clicks = t.input("clicks", "ts | page")
        clicks.push(("2026-01-01 09:00:00", "home"), split="a")
        clicks.push(("2026-01-01 09:10:00", "help"), split="b")
        clicks.watermark("2026-01-01 12:00:00", split="a")
        t.expect("result", [], columns="page")
    with tw.testing.case(CLICKS) as t:
        clicks = t.input("clicks", "ts | page")
        clicks.push(("2026-01-01 09:00:00", "home"), split="a")
        clicks.push(("2026-01-01 09:10:00", "help"), split="b")
        clicks.watermark("2026-01-01 12:00:00", split="a")
        clicks.end()
        t.expect("result", "page | n\nhome | 1\nhelp | 1")


def test_an_hour_of_the_clock_takes_no_time_and_says_when_rows_come_out():
    begun = time.monotonic()
    settings = {"watermark.idle-timeout": "30 s", "pipeline.order.allow-nondeterministic": "true"}
    with tw.testing.case(CLICKS, at="2026-01-01 09:00", order="epoch", settings=settings) as t:
        clicks = t.input("clicks", "ts | page")
        clicks.push(("2026-01-01 09:00:00", "home"), split="silent")
        clicks.push(("2026-01-01 09:00:00", "help"), split="b")
        clicks.watermark("2026-01-01 10:00:00", split="b")
        t.advance(datetime.timedelta(hours=1))
        t.expect("result", "at | page | n\n09:00:30.001 | home | 1\n09:00:30.001 | help | 1")
    assert t.now == datetime.datetime(2026, 1, 1, 10)
    assert time.monotonic() - begun < 600


def test_changes_of_keys_are_expected_in_their_sequence():
    text = """CREATE TABLE words (word STRING) WITH ('connector' = 'datagen');
    SELECT word, COUNT(*) AS n FROM words GROUP BY word"""
    with tw.testing.case(text, order="arrival") as t:
        words = t.input("words", "word")
        for word in ("a", "b", "a"):
            words.push([word])
            t.advance(1)
        t.expect_changes("result", "op | word | n\n+I | a | 1\n+I | b | 1\n-U | a | 1\n+U | a | 2")
        t.expect("result", [("a", 2), ("b", 1)], columns="word | n")


def test_values_of_python_are_values_of_sql():
    given = {
        "i": 7, "d": decimal.Decimal("1.5"), "f": 0.25, "b": True, "s": "a|b 'c'\n\\", "x": b"\x00\xff",
        "ts": datetime.datetime(2026, 1, 1, 9, 0, 0, 250_000), "day": datetime.date(2026, 1, 2), "list": ["a", None],
        "none": None, "empty": "",
    }
    text = """CREATE TABLE t (i INT, d DECIMAL(5, 2), f DOUBLE, b BOOLEAN, s STRING, x BYTES, ts TIMESTAMP(3), `day` DATE,
      `list` ARRAY<STRING>, `none` INT, `empty` STRING) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = 't.json');
    SELECT i, d, f, b, s, x, ts, `day`, CARDINALITY(`list`) AS n, `none`, `empty` FROM t"""
    expected = {**{name: value for name, value in given.items() if name != "list"}, "n": 2}
    with tw.testing.case(text) as t:
        t.input("t", list(given), rows=[given])
        t.expect("result", [expected])


def test_statements_that_are_wrong_raise_with_their_place():
    with pytest.raises(tw.SqlError) as raised:
        with tw.testing.case("SELECT 1 AS one;\nSELECT amont FROM (VALUES (1)) AS t (amount)") as t:
            t.expect("result-2", [], columns="amount")
    assert (raised.value.line, raised.value.column) == (2, 8)
    assert "amont" in str(raised.value)
    with tw.testing.case("SELECT amont FROM (VALUES (1)) AS t (amount)") as t:
        t.expect_error("amont")
    with pytest.raises(AssertionError, match="no error"):
        with tw.testing.case("SELECT 1 AS one") as t:
            t.expect_error("amont")


def test_a_value_that_is_none_of_its_column_names_it():
    with pytest.raises(tw.SqlError, match="column used of readings") as raised:
        with tw.testing.case(READINGS) as t:
            t.input("readings", "ts | meter | used").push(("2026-01-01 09:00:00", "north", "many"))
            t.expect("per_minute", [], columns="used")
    assert "| 2026-01-01 09:00:00 | north | many |" in str(raised.value)


def test_functions_and_sinks_of_a_connection_are_there():
    @tw.udf(rows=True)
    def double(n: int) -> int:
        return n * 2

    @tw.udf
    def plus_one(n: tw.Array) -> Annotated[tw.Array, "BIGINT"]:
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.add(pa.array(n), 1)

    @tw.udaf
    def widest(values: list[int]) -> int:
        return max(values) - min(values)

    pytest.importorskip("pyarrow")
    db = tw.connect()
    for function in (double, plus_one, widest):
        db.register_function(function)
    written = []
    db.register_sink("out", written.append)
    text = """CREATE TABLE t (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 't.csv');
    CREATE TABLE o (k STRING, n BIGINT, w BIGINT) WITH ('connector' = 'python', 'sink' = 'out');
    INSERT INTO o SELECT k, MAX(plus_one(double(n))), widest(n) FROM t GROUP BY k"""
    with tw.testing.case(text, db=db) as t:
        t.input("t", "k | n").push(("a", 1), ("a", 5), ("b", 2))
        t.expect("o", [("a", 11, 4), ("b", 5, 0)], columns="k | n | w")
    assert written == []


def test_what_a_function_raises_is_the_cause():
    @tw.udf(rows=True)
    def fail(n: int) -> int:
        raise LookupError("no such thing")

    db = tw.connect()
    db.register_function(fail)
    text = "CREATE TABLE t (n BIGINT) WITH ('connector' = 'datagen'); SELECT fail(n) AS n FROM t"
    with pytest.raises(tw.FunctionError) as raised:
        with tw.testing.case(text, db=db) as t:
            t.input("t", "n").push([1])
            t.expect("result", [], columns="n")
    assert isinstance(raised.value.__cause__, LookupError)


def test_params_are_literals_and_tables_may_be_looked_up():
    text = """CREATE TABLE orders (item STRING, at_time AS PROCTIME()) WITH ('connector' = 'datagen');
    CREATE TABLE prices (item STRING, price INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://127.0.0.1/none', 'table-name' = 'prices', 'username' = 'shop', 'password' = 'none');
    SELECT o.item, p.price FROM orders AS o JOIN prices FOR SYSTEM_TIME AS OF o.at_time AS p ON o.item = p.item
    WHERE o.item <> ${without}"""
    with tw.testing.case(text, params={"without": "it's"}, order="epoch") as t:
        t.input("prices", "item | price", rows=[("tea", 2), ("it's", 3)])
        t.input("orders", "item").push(["tea"], ["it's"])
        t.expect("result", [("tea", 2)], columns="item | price")


def test_mistakes_in_a_case_say_so():
    t = tw.testing.case(READINGS)
    readings = t.input("readings", "ts | meter | used")
    with pytest.raises(TypeError, match="3 columns"):
        readings.push(("2026-01-01", "north"))
    with pytest.raises(TypeError, match="no column 'metre'"):
        readings.push({"metre": "north"})
    with pytest.raises(ValueError, match="give one more value"):
        readings.push(("end", None, None))
    with pytest.raises(TypeError, match="which columns"):
        t.expect("per_minute", [])
    with pytest.raises(TypeError, match="expects nothing"):
        t.check()


def test_all_cases_of_a_file_are_checked(tmp_path):
    (tmp_path / "job.sql").write_text(READINGS)
    path = tmp_path / "job.test.md"
    table = "input readings\n\n| ts | meter | used |\n|---|---|---|\n| 2026-01-01 09:00:00 | north | 1 |\n\nexpect per_minute\n\n| used |\n|---|\n| {} |\n"
    path.write_text("sql job.sql\n\n## One\n\n" + table.format(1) + "\n## Two\n\n" + table.format(2))
    with pytest.raises(AssertionError, match=r"job.test.md:\d+: expect per_minute"):
        tw.testing.check_file(path)
    path.write_text("sql job.sql\n\n## One\n\n" + table.format(1))
    assert [report.name for report in tw.testing.check_file(path)] == ["One"]


ORDERS = """
CREATE TABLE orders (ts TIMESTAMP(3), item STRING, amount INT, WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen', 'rows-per-second' = '1');
CREATE TABLE totals (item STRING, total INT) WITH ('connector' = 'blackhole');
CREATE TABLE copies (item STRING, amount INT) WITH ('connector' = 'blackhole');
INSERT INTO totals SELECT item, SUM(amount)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY item, window_start, window_end;
INSERT INTO copies SELECT item, amount FROM orders;
"""


def test_a_job_that_is_killed_resumes_from_its_snapshot_with_each_result_once():
    with tw.testing.case(ORDERS, at="2026-01-01 09:00") as t:
        orders = t.input("orders", "ts | item | amount")
        orders.push("2026-01-01 09:00:05 | tea | 2")
        t.snapshot()
        orders.push("2026-01-01 09:10:00 | tea | 4", "2026-01-01 10:00:00 | tea | 8")
        t.advance("1 min")
        t.crash()
        orders.push("2026-01-01 10:30:00 | tea | 16")
        t.restore()
        orders.watermark("2026-01-01 11:00:00")
        t.expect("totals", [("tea", 6), ("tea", 24)], columns="item | total")
        t.expect("copies", [(2,), (4,), (8,), (16,)], columns="amount")
        t.expect_late("item")
    assert t.check().variants == 4


def test_what_no_snapshot_covers_is_gone_until_the_job_is_restored():
    for restores, expected in [(False, [(2,)]), (True, [(2,), (4,)])]:
        with tw.testing.case(ORDERS, at="2026-01-01 09:00") as t:
            orders = t.input("orders", "ts | item | amount")
            orders.push("2026-01-01 09:00:05 | tea | 2")
            t.snapshot()
            orders.push("2026-01-01 09:10:00 | tea | 4")
            t.crash()
            if restores:
                t.restore()
            t.expect("copies", expected, columns="amount")


def test_a_crash_that_loses_or_doubles_a_row_would_be_seen():
    for wrong in ([(2,)], [(2,), (4,), (4,)]):
        with pytest.raises(AssertionError, match="expect copies"):
            with tw.testing.case(ORDERS, at="2026-01-01 09:00") as t:
                orders = t.input("orders", "ts | item | amount")
                orders.push("2026-01-01 09:00:05 | tea | 2")
                t.snapshot()
                orders.push("2026-01-01 09:10:00 | tea | 4")
                t.crash()
                t.restore()
                t.expect("copies", wrong, columns="amount")


def test_a_snapshot_lies_behind_rows_of_all_inputs():
    text = """
    CREATE TABLE a (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1');
    CREATE TABLE b (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1');
    SELECT n FROM a UNION ALL SELECT n FROM b
    """
    with tw.testing.case(text, order="epoch") as t:
        a, b = t.input("a", "n"), t.input("b", "n")
        b.push([1])
        a.push([2])
        t.snapshot()
        a.push([3])
        t.crash()
        t.expect("result", [(1,), (2,)], columns="n")


def test_a_job_that_runs_cannot_be_restored_and_one_that_is_down_cannot_crash():
    for calls, message in [(["restore"], "the job runs"), (["crash", "snapshot"], "the job has crashed already")]:
        with pytest.raises(tw.SqlError, match=message):
            with tw.testing.case(ORDERS) as t:
                t.input("orders", "ts | item | amount")
                for call in calls:
                    getattr(t, call)()
                t.expect("copies", [], columns="amount")
