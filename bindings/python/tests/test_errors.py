"""Errors are exceptions that say where and what to do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

import thalweg as tw

pa = pytest.importorskip("pyarrow")


def test_a_mistake_in_a_statement_has_its_place_and_help():
    with pytest.raises(tw.SqlError) as raised:
        tw.connect().sql("SELECT\n  amont FROM t", t=pa.table({"amount": [1]}))
    error = raised.value
    assert (error.line, error.column) == (2, 3)
    assert "amount" in (error.help or "")
    assert "2 |   amont FROM t\n  |   ^^^^^" in str(error)
    assert error.sql.startswith("SELECT")


def test_the_place_is_right_behind_other_statements():
    with pytest.raises(tw.SqlError) as raised:
        tw.connect().sql("CREATE VIEW v AS SELECT 1 AS n; SELECT m FROM v")
    assert (raised.value.line, raised.value.column) == (1, 40)


def test_a_row_that_does_not_fit_is_a_data_error(tmp_path):
    (tmp_path / "in.csv").write_text("1\nx\n")
    db = tw.connect(tmp_path)
    db.sql("CREATE TABLE t (n INT) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv')")
    with pytest.raises(tw.DataError) as raised:
        db.sql("SELECT n FROM t").fetchall()
    assert raised.value.row == 2
    assert (raised.value.file or "").endswith("in.csv")


def test_an_error_reaches_whoever_reads_the_stream():
    result = tw.connect().sql("SELECT 1 / n AS n FROM t", t=pa.table({"n": [1, 0]}))
    with pytest.raises(tw.DataError, match="division by zero"):
        result.arrow()
    with pytest.raises(pa.ArrowException, match="division by zero"):
        pa.table(result)


ENDLESS = """
import signal, sys, threading, time, os
import thalweg as tw
db = tw.connect()
db.sql("CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10')")
pressed = []
def press():
    time.sleep(0.5)
    pressed.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press).start()
try:
    WAIT
except KeyboardInterrupt:
    print(time.monotonic() - pressed[0])
"""


@pytest.mark.parametrize(
    "wait",
    [
        "db.sql('SELECT n FROM ticks WHERE n < 0').fetchall()",
        "list(db.sql('SELECT n FROM ticks WHERE n < 0'))",
        "db.sql(\"CREATE TABLE out (n BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO out SELECT n FROM ticks\")",
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_ctrl_c_ends_a_query(wait):
    program = ENDLESS.replace("WAIT", wait)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # The goal is a tenth of a second; a busy machine may take longer.
    assert float(done.stdout) < 5


def test_other_threads_run_while_a_query_does():
    db = tw.connect()
    db.sql("CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100', 'number-of-rows' = '50')")
    counted = 0
    thread = threading.Thread(target=lambda: db.sql("SELECT n FROM ticks").fetchall())
    thread.start()
    while thread.is_alive():
        counted += 1
        time.sleep(0.001)
    assert counted > 20


def test_an_interpreter_that_ends_stops_its_queries():
    program = (
        "import thalweg as tw; db = tw.connect();"
        "db.sql(\"CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10')\");"
        "b = iter(db.sql('SELECT n FROM ticks')); next(b)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_else_is_imported():
    program = (
        "import sys, thalweg; heavy = {'pyarrow', 'polars', 'pandas', 'duckdb', 'numpy', 'asyncio'};"
        "heavy |= {'dataclasses', 'inspect', 'json', 'thalweg.testing', 'thalweg.notebook'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_is_there(tmp_path):
    (tmp_path / "q.sql").write_text("SELECT 6 * 7 AS answer;")
    done = subprocess.run(
        [sys.executable, "-m", "thalweg", "run", str(tmp_path / "q.sql")], capture_output=True, text=True
    )
    assert done.returncode == 0 and "42" in done.stdout
    wrong = subprocess.run([sys.executable, "-m", "thalweg", "run", "none.sql"], capture_output=True, cwd=tmp_path)
    assert wrong.returncode == 2
