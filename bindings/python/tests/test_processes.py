"""Keyed process functions: states, timers, snapshots."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

import thalweg as tw

pa = pytest.importorskip("pyarrow")

BEGIN = datetime(2026, 1, 1, 9)
GAP = timedelta(minutes=30)


@dataclasses.dataclass
class Click:
    user: int
    ts: datetime
    page: str


@dataclasses.dataclass
class Open:
    first: datetime
    last: datetime
    pages: list[str]


class Summary(NamedTuple):
    user: int
    clicks: int
    minutes: float
    pages: list[str]


class Sessions(tw.KeyedProcess[int, Click, Summary]):
    state: Open | None

    def on_row(self, key: int, row: Click, ctx: tw.Context[Summary]) -> None:
        if self.state is not None:
            ctx.delete_timer(self.state.last + GAP)
            if row.ts >= self.state.last + GAP:
                self.on_timer(key, self.state.last + GAP, ctx)
                self.state = None
        if self.state is None:
            self.state = Open(row.ts, row.ts, [])
        self.state.last = row.ts
        self.state.pages.append(row.page)
        ctx.timer(row.ts + GAP)

    def on_timer(self, key: int, at: datetime, ctx: tw.Context[Summary]) -> None:
        assert self.state is not None and at == self.state.last + GAP
        minutes = (self.state.last - self.state.first) / timedelta(minutes=1)
        ctx.emit(Summary(key, len(self.state.pages), minutes, self.state.pages))
        self.state = None


def clicks(*rows: tuple[int, int, str]) -> tw.Stream:
    table = pa.table({
        "page": [page for _, _, page in rows],
        "ts": [BEGIN + timedelta(minutes=minute) for minute, _, _ in rows],
        "user": [user for _, user, _ in rows],
        "unread": [0.5] * len(rows),
    })
    return tw.stream(table, rowtime="ts")


def test_a_process_function_keeps_a_state_for_each_key_and_sets_timers():
    db = tw.connect()
    db.register("clicks", clicks((0, 1, "a"), (1, 2, "b"), (20, 1, "c"), (60, 1, "d")))
    db.register_process("sessions", Sessions, "clicks", key="user")
    result = db.sql("SELECT `user`, clicks, minutes, pages FROM sessions")
    assert sorted(result.fetchall()) == [
        (1, 1, 0.0, ["d"]),
        (1, 2, 20.0, ["a", "c"]),
        (2, 1, 0.0, ["b"]),
    ]
    assert "python, row by row" in result.explain()
    total = db.sql("SELECT SUM(clicks) AS n FROM sessions WHERE minutes = 0")
    assert total.fetchall() == [(2,)]


def test_many_keys_and_rows_come_out_whole():
    class Count(tw.KeyedProcess[int, Numbered, tw.Row[int, int]]):
        state: int | None

        def on_row(self, key, row, ctx):
            self.state = (self.state or 0) + row.n
            ctx.emit((key, self.state))

    db = tw.connect(workers=4)
    rows, keys = 200_000, 1_000
    db.register("numbers", pa.table({"k": [n % keys for n in range(rows)], "n": [1] * rows}))
    db.register_process("counts", Count, "numbers", key="k")
    found = db.sql("SELECT f0, MAX(f1) AS n, COUNT(*) AS c FROM counts GROUP BY f0").fetchall()
    assert len(found) == keys and all(n == c == rows // keys for _, n, c in found)


@dataclasses.dataclass
class Numbered:
    k: int
    n: int


def test_timers_of_the_clock_fire_while_no_row_comes():
    class Alarm(tw.KeyedProcess[int, Numbered, tw.Row[int, int]]):
        state: int | None

        def on_row(self, key, row, ctx):
            self.state = row.n
            ctx.timer(ctx.now + timedelta(milliseconds=150), clock=True)

        def on_clock(self, key, at, ctx):
            ctx.emit((key, self.state))
            ctx.forget()

    def rows():
        batch = pa.record_batch({"k": [1, 2], "n": [10, 20]})

        def read():
            yield batch
            time.sleep(2)

        return pa.RecordBatchReader.from_batches(batch.schema, read())

    db = tw.connect()
    db.register("rows", tw.stream(rows, bounded=False))
    db.register_process("alarms", Alarm, "rows", key="k")
    begun = time.monotonic()
    found = []
    for batch in db.sql("SELECT f0, f1 FROM alarms"):
        found += batch.fetchall()
        if len(found) == 2:
            break
    assert sorted(found) == [(1, 10), (2, 20)]
    assert time.monotonic() - begun < 1.9


def test_hints_of_a_process_function_are_checked():
    db = tw.connect()

    class Plain(tw.KeyedProcess):  # type: ignore[type-arg]
        state: int | None

    class Untyped(tw.KeyedProcess[int, Numbered, int]):
        pass

    class Strange(tw.KeyedProcess[int, int, int]):
        state: int | None

    class Unknown(tw.KeyedProcess[int, Numbered, complex]):
        state: int | None

    for process, message in [
        (Plain, "KeyedProcess"),
        (Untyped, "the state has no hint"),
        (Strange, "a dataclass, a NamedTuple or a TypedDict"),
        (Unknown, "complex"),
    ]:
        with pytest.raises(TypeError, match=message):
            db.register_process("p", process, "t", key="k")


def test_a_column_that_is_not_there_is_named():
    db = tw.connect()
    db.register("t", pa.table({"key": [1], "n": [1]}))

    class Count(tw.KeyedProcess[int, Numbered, int]):
        state: int | None

    db.register_process("counts", Count, "t", key="k")
    with pytest.raises(tw.SqlError, match="reads column 'k', which 't' does not have"):
        db.sql("SELECT * FROM counts")


def test_an_exception_of_a_process_function_names_its_line():
    db = tw.connect()

    class Broken(tw.KeyedProcess[int, Numbered, int]):
        state: int | None

        def on_row(self, key, row, ctx):
            ctx.emit(1 // row.n)

    db.register("t", pa.table({"k": [1], "n": [0]}))
    db.register_process("broken", Broken, "t", key="k")
    with pytest.raises(tw.FunctionError, match=r"ZeroDivisionError.*test_processes\.py:\d+"):
        db.sql("SELECT * FROM broken").fetchall()


def test_rows_that_are_no_rows_of_the_result_are_refused():
    db = tw.connect()

    class Text(tw.KeyedProcess[int, Numbered, int]):
        state: int | None

        def on_row(self, key, row, ctx):
            ctx.emit("text")

    db.register("t", pa.table({"k": [1], "n": [0]}))
    db.register_process("texts", Text, "t", key="k")
    with pytest.raises(tw.FunctionError, match="no row of its result"):
        db.sql("SELECT * FROM texts").fetchall()


#: A job that counts, per key, and tells every fifth row; timers tell the rest at the end.
PROGRAM = '''
import dataclasses, sys, time
from datetime import datetime, timedelta
import pyarrow as pa
import thalweg as tw

@dataclasses.dataclass
class Row:
    k: int
    ts: datetime

@dataclasses.dataclass
class Kept:
    rows: int
    last: datetime

class Fives(tw.KeyedProcess[int, Row, tw.Row[int, int]]):
    state: Kept | None

    def on_row(self, key, row, ctx):
        if self.state is not None:
            ctx.delete_timer(self.state.last + timedelta(days=1))
        self.state = Kept(1 if self.state is None else self.state.rows + 1, row.ts)
        ctx.timer(row.ts + timedelta(days=1))
        if self.state.rows % 5 == 0:
            ctx.emit((key, self.state.rows))

    def on_timer(self, key, at, ctx):
        ctx.emit((key, -self.state.rows))
        ctx.forget()

class Rows:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("ms"))])

    def read(self, position):
        for first in range(int(position or 0), 2000, 50):
            time.sleep(0.02)
            rows = range(first, first + 50)
            times = [datetime(2026, 1, 1) + timedelta(seconds=n) for n in rows]
            yield pa.record_batch([pa.array([n % 7 for n in rows]), pa.array(times, pa.timestamp("ms"))], schema=self.schema), str(first + 50)

db = tw.connect(sys.argv[1])
db.register("rows", tw.stream(Rows(), rowtime="ts"))
db.register_process("fives", Fives, "rows", key="k")
db.sql("CREATE TABLE out (k BIGINT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out/', 'format' = 'csv')")
job = db.start("fives", "INSERT INTO out SELECT f0, f1 FROM fives", snapshots="state", interval="100 ms", resume=True)
job.wait()
'''


def test_a_process_function_continues_behind_a_crash(tmp_path: Path):
    (tmp_path / "job.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "job.py"), str(tmp_path)]
    kills = 0
    for _ in range(3):
        running = subprocess.Popen(command)
        time.sleep(1.2)
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            kills += 1
        running.wait()
    subprocess.run(command, check=True, timeout=60)
    assert kills > 0
    found = sorted(
        tuple(int(value) for value in line.split(","))
        for part in (tmp_path / "out").iterdir()
        if not part.name.startswith(".")
        for line in part.read_text().split()
    )
    counts = {key: len(range(key, 2000, 7)) for key in range(7)}
    expected = [(key, n) for key, count in counts.items() for n in range(5, count + 1, 5)]
    expected += [(key, -count) for key, count in counts.items()]
    assert found == sorted(expected)
