"""Jobs in the background."""

from __future__ import annotations

import time

import pytest

import thalweg as tw

TABLES = """
CREATE TABLE ticks (n BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{end}'
);
CREATE TABLE out (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
"""
INSERT = "INSERT INTO out SELECT n FROM ticks"


def rows(folder):
    return [int(line) for line in (folder / "out").read_text().split()]


def test_a_job_runs_in_the_background_until_it_has_finished(tmp_path):
    db = tw.connect(tmp_path)
    db.sql(TABLES.format(end=300))
    job = db.start("copy", INSERT)
    assert job.state in ("running", "finished")
    assert job.wait(30)
    assert job.state == "finished" and repr(job) == "<thalweg.Job copy: finished>"


def test_a_job_is_stopped_as_a_context_manager(tmp_path):
    db = tw.connect(tmp_path)
    db.sql(TABLES.format(end=10**9))
    with db.start("copy", INSERT, snapshots="state", interval="200 ms") as job:
        time.sleep(1)
        assert job.state == "running"
        assert job.metrics()["stages"]
        assert job.watermarks()
        assert job.why() is None or "copy" in str(job.why())
        assert not job.wait(0.01)
    assert job.state == "stopped"


def test_a_job_goes_on_from_its_snapshot(tmp_path):
    db = tw.connect(tmp_path)
    db.sql(TABLES.format(end=1500))
    with db.start("copy", INSERT, snapshots="state", interval="100 ms"):
        time.sleep(0.5)
    job = db.start("copy", INSERT, snapshots="state", resume=True)
    assert job.wait(30)
    assert sorted(rows(tmp_path)) == list(range(1, 1501))


def test_a_job_that_cannot_resume_says_so(tmp_path):
    db = tw.connect(tmp_path)
    db.sql(TABLES.format(end=10))
    with pytest.raises(tw.StateError, match="snapshot"):
        db.start("copy", INSERT, snapshots="state", resume=7)


def test_state_and_outputs_go_where_that_is_asked_for(tmp_path):
    db = tw.connect(tmp_path)
    db.sql(TABLES.format(end=300))
    db.sql("CREATE TABLE totals (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole')")
    grouped = "INSERT INTO totals SELECT MOD(n, 3), COUNT(*) FROM ticks GROUP BY MOD(n, 3)"
    with db.start("copy", grouped, snapshots="state", interval="50 ms"):
        time.sleep(0.2)
    plain = "INSERT INTO totals SELECT n, n FROM ticks"
    with pytest.raises(tw.Error) as raised:
        db.start("copy", plain, snapshots="state", resume=True)
    assert "drop_state=True" in str(raised.value)
    assert db.start("copy", plain, snapshots="state", resume=True, drop_state=True).wait(30)
    assert db.start("rows", INSERT).wait(30)
    with pytest.raises(tw.Error) as refused:
        db.start("rows", INSERT, snapshots="state").wait(30)
    assert "overwrite=True" in str(refused.value)
    assert db.start("rows", INSERT, snapshots="state", overwrite=True).wait(30)
    assert sorted(rows(tmp_path)) == list(range(1, 301))


class Ledger:
    """Batches that become visible when they are committed."""

    def __init__(self):
        self.open, self.prepared, self.visible = [], {}, []
        self.recovered_with = []

    def write(self, batch):
        self.open += [n for (n,) in batch.fetchall()]

    def prepare(self):
        handle = f"t{len(self.prepared)}"
        self.prepared[handle], self.open = self.open, []
        return handle

    def commit(self, handle):
        self.visible += self.prepared.pop(handle, [])

    def recover(self, handle):
        self.recovered_with.append(handle)
        if handle is not None:
            self.commit(handle)
        self.open, self.prepared = [], {}


def test_a_sink_with_transactions_has_each_row_once(tmp_path):
    db = tw.connect(tmp_path)
    db.sql(TABLES.format(end=1500))
    db.sql("CREATE TABLE ledger (n BIGINT) WITH ('connector' = 'python', 'sink' = 'ledger')")
    ledger = Ledger()
    db.register_sink("ledger", ledger)
    insert = "INSERT INTO ledger SELECT n FROM ticks"
    with db.start("copy", insert, snapshots="state", interval="100 ms"):
        time.sleep(0.5)
    assert 0 < len(ledger.visible) < 1500
    assert db.start("copy", insert, snapshots="state", resume=True).wait(30)
    assert sorted(ledger.visible) == list(range(1, 1501))
    assert ledger.recovered_with[0] is None and ledger.recovered_with[1] is not None


class Numbers:
    """The numbers from 1 to 1,500, in batches of 100."""

    def __init__(self):
        import pyarrow as pa

        self.schema = pa.schema([("n", pa.int64())])
        self.positions = []

    def read(self, position):
        import pyarrow as pa

        self.positions.append(position)
        for first in range(int(position or 1), 1501, 100):
            time.sleep(0.02)
            yield pa.record_batch({"n": list(range(first, first + 100))}), str(first + 100)


def test_a_source_with_positions_goes_on_from_a_snapshot(tmp_path):
    pytest.importorskip("pyarrow")
    db = tw.connect(tmp_path)
    numbers, ledger = Numbers(), Ledger()
    db.register("numbers", numbers)
    db.register_sink("ledger", ledger)
    db.sql("CREATE TABLE ledger (n BIGINT) WITH ('connector' = 'python', 'sink' = 'ledger')")
    insert = "INSERT INTO ledger SELECT n FROM numbers"
    with db.start("copy", insert, snapshots="state", interval="50 ms"):
        until = time.monotonic() + 20
        while len(ledger.visible) < 300 and time.monotonic() < until:
            time.sleep(0.01)
    assert db.start("copy", insert, snapshots="state", resume=True).wait(30)
    assert sorted(ledger.visible) == list(range(1, 1501))
    assert numbers.positions[0] is None and numbers.positions[-1] is not None


def test_a_callable_is_a_sink(tmp_path):
    db = tw.connect(tmp_path)
    taken = []
    db.register_sink("taken", lambda batch: taken.extend(batch.fetchall()))
    db.sql("CREATE TABLE taken (n BIGINT) WITH ('connector' = 'python', 'sink' = 'taken')")
    db.sql("INSERT INTO taken VALUES (1), (2)")
    assert sorted(taken) == [(1,), (2,)]
    with pytest.raises(tw.SqlError, match="did you mean 'taken'"):
        db.sql("CREATE TABLE x (n BIGINT) WITH ('connector' = 'python', 'sink' = 'take'); INSERT INTO x VALUES (1)")


def test_a_sink_that_raises_fails_the_job(tmp_path):
    db = tw.connect(tmp_path)

    def refuse(batch):
        raise OSError("no room")

    db.register_sink("full", refuse)
    db.sql("CREATE TABLE full_one (n BIGINT) WITH ('connector' = 'python', 'sink' = 'full')")
    with pytest.raises(tw.FunctionError, match="no room") as raised:
        db.sql("INSERT INTO full_one VALUES (1)")
    assert isinstance(raised.value.__cause__, OSError)


def test_a_mistake_shows_when_a_job_is_started(tmp_path):
    db = tw.connect(tmp_path)
    with pytest.raises(tw.SqlError) as raised:
        db.start("copy", "INSERT INTO nowhere SELECT 1")
    assert raised.value.line == 1
    with pytest.raises(tw.SqlError, match="result"):
        db.start("copy", "SELECT 1")


def test_a_job_that_fails_raises_when_it_is_awaited(tmp_path):
    db = tw.connect(tmp_path)
    db.sql(TABLES.format(end=500))
    job = db.start("copy", "INSERT INTO out SELECT 1000 / (n - 400) FROM ticks")
    with pytest.raises(tw.DataError, match="division by zero"):
        job.wait(30)
    assert job.state == "failed"


def test_a_job_of_the_same_name_replaces_the_one_that_runs(tmp_path):
    db = tw.connect(tmp_path)
    db.sql(TABLES.format(end=10**9))
    db.sql("CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole')")
    first = db.start("copy", "INSERT INTO nowhere SELECT n FROM ticks")
    second = db.start("copy", "INSERT INTO nowhere SELECT n + 1 FROM ticks")
    assert first.state == "stopped" and second.state == "running"
    db.close()
    assert second.state == "stopped"


def test_rows_of_a_job_are_seen_as_they_pass(tmp_path):
    db = tw.connect(tmp_path)
    db.sql(TABLES.format(end=10**9))
    db.sql("CREATE TABLE nowhere (n BIGINT, half BIGINT) WITH ('connector' = 'blackhole')")
    with db.start("copy", "INSERT INTO nowhere SELECT n, n / 2 FROM ticks") as job:
        seen = list(job.tap(limit=5))
        assert len(seen) == 5 and all(row["half"] == row["n"] // 2 for row in seen)
        read = next(job.tap("ticks", where="MOD(n, 2) = 1"))
        assert set(read) == {"n"} and read["n"] % 2 == 1
        with pytest.raises(tw.SqlError, match="reads no table 'tick'"):
            job.tap("tick")
        with pytest.raises(tw.SqlError):
            job.tap(where="n >")
        rest = job.tap(limit=10**9)
        next(rest)
    assert all(row["n"] for row in rest)  # It ends with the job.
