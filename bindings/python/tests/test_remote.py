"""Connections to a server."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from datetime import datetime
from decimal import Decimal

import pytest

import thalweg as tw
from thalweg._thalweg import split_query

THALWEG = [sys.executable, "-m", "thalweg"]
TICKS = """
CREATE TABLE ticks (n BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{end}'
);
CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server, and a token."""
    folder = tmp_path_factory.mktemp("server")
    command = [*THALWEG, "serve", "--data-dir", str(folder), "--listen", "127.0.0.1:0"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr is not None
        line = running.stderr.readline()
        assert "listening at" in line, line
        url = line.split()[-1]
        token = [*THALWEG, "token", "create", "tests", "--role", "admin", "--data-dir", str(folder)]
        made = subprocess.run(token, check=True, capture_output=True, text=True)
        yield url, made.stdout.split()[-1]
    finally:
        running.terminate()
        running.wait(20)


@pytest.fixture
def db(server):
    url, token = server
    return tw.connect(url, token=token)


def test_queries_are_answered_by_the_server(db):
    db.sql("CREATE VIEW numbers AS SELECT n FROM (VALUES (1), (2)) AS t (n)")
    assert sorted(db.sql("SELECT n * ${by} AS n FROM numbers", params={"by": 3}).fetchall()) == [(3,), (6,)]
    query = "SELECT TIMESTAMP '2026-01-01 09:00:00' AS t, CAST(1.5 AS DECIMAL(3, 1)) AS d, 'x' AS s, TRUE AS b"
    assert db.sql(query).fetchall() == [(datetime(2026, 1, 1, 9), Decimal("1.5"), "x", True)]
    assert "numbers" in repr(db.sql("SELECT 1 AS numbers").columns)
    assert db.sql("SELECT 1 AS n").explain()


def test_mistakes_have_their_places(db):
    with pytest.raises(tw.SqlError) as raised:
        db.sql("SELECT 1 AS n, x FROM nothing")
    assert raised.value.line == 1 and raised.value.column


def test_jobs_are_started_looked_at_and_stopped(db):
    db.sql(TICKS.format(end=10**9))
    with db.start("ticks", "INSERT INTO nowhere SELECT n FROM ticks") as job:
        assert job.state == "running"
        until = time.monotonic() + 10
        while not job.metrics().get("stages") and time.monotonic() < until:
            time.sleep(0.1)
        assert job.watermarks() and "ticks" in [job.name for job in db.jobs]
        assert job.why() is None or str(job.why())
        assert not job.wait(0.01)
    assert job.state == "stopped"
    assert job.metrics() == {} and job.why() is None
    again = db.start("ticks", "INSERT INTO nowhere SELECT n FROM ticks", resume=True)
    again.stop()
    assert again.wait(30)


def test_a_job_that_ends_and_one_that_fails(db):
    db.sql(TICKS.format(end=100))
    assert db.start("short", "INSERT INTO nowhere SELECT n FROM ticks").wait(30)
    assert db.job("short").state == "finished"
    text = "SET 'restart-strategy' = 'none'; INSERT INTO nowhere SELECT 1000 / (n - 50) FROM ticks"
    with pytest.raises(tw.DataError, match="division by zero"):
        # It may fail before anybody has seen it running.
        db.start("failing", text).wait(30)


def test_objects_of_this_process_are_refused(db):
    for call in (
        lambda: db.sql("SELECT * FROM t", t=[1]),
        lambda: db.register("t", [1]),
        lambda: db.register_function(len),
    ):
        with pytest.raises(TypeError, match="does not reach"):
            call()


def test_a_wrong_token_and_a_server_that_is_not_there_say_so(server):
    with pytest.raises(tw.Error, match="(?i)token"):
        tw.connect(server[0], token="wrong").sql("SELECT 1 AS n")
    with pytest.raises(tw.Error, match="no server answers"):
        tw.connect("http://127.0.0.1:9", token="x").sql("SELECT 1 AS n")
    with pytest.raises(TypeError, match="a token is for a server"):
        tw.connect("folder", token="x")  # type: ignore[call-overload]


def test_the_last_statement_is_found_behind_comments_and_texts():
    assert split_query("SELECT 1", None) == ("SELECT 1", "", True)
    text = "-- a;\nSET 'x' = ';'; SELECT ';' -- b;\n;"
    assert split_query(text, None) == (text, "-- a;\nSET 'x' = ';'; ", True)
    assert split_query("INSERT INTO t SELECT ${n}", {"n": "1"})[1:] == ("INSERT INTO t SELECT 1", False)
    assert split_query("/* ; */ WITH q AS (SELECT 1) SELECT * FROM q", None)[2]
    with pytest.raises(tw.SqlError) as raised:
        split_query("SELECT 1;\nSELEC 2", None)
    assert raised.value.line == 2


def test_parameters_of_declarations_have_their_values_in_later_queries(db):
    db.sql("CREATE VIEW times AS SELECT n * ${by} AS n FROM (VALUES (1), (2)) AS t (n)", params={"by": 10})
    assert sorted(db.sql("SELECT n FROM times").fetchall()) == [(10,), (20,)]
    assert db.sql("SELECT n FROM times WHERE n > ${least}", params={"least": 15}).fetchall() == [(20,)]


def test_the_server_answers_what_the_tests_ask(server):
    with urllib.request.urlopen(server[0] + "/healthz") as answer:
        assert answer.status == 200
