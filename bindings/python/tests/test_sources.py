"""Sources of Python with splits and heartbeats."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta, timezone

import pytest

import thalweg as tw

pa = pytest.importorskip("pyarrow")

BEGIN = datetime(2026, 1, 1, 9)
SCHEMA = pa.schema([("ts", pa.timestamp("ms")), ("n", pa.int64())])
HOURS = "SELECT window_start, SUM(n) FROM TUMBLE(meters, ts, INTERVAL '1' HOUR) GROUP BY window_start, window_end"


def batch(*rows):
    return pa.Table.from_pylist([{"ts": BEGIN + timedelta(minutes=minute), "n": n} for minute, n in rows], SCHEMA)


class Meters:
    """Reads what its splits are given as: lists of what `read` yields."""

    schema = SCHEMA

    def __init__(self, **items):
        self.items = items

    def splits(self):
        return list(self.items)

    def read(self, split, position):
        for number, item in enumerate(self.items[split][int(position or 0) :], int(position or 0)):
            yield item if isinstance(item, tw.Heartbeat) else (item, str(number + 1))


def test_rows_are_judged_by_their_own_split():
    # Two splits, of which each is in order, hours apart: no row is late, whichever is read first.
    north = [batch((minute, 1)) for minute in range(0, 300, 20)]
    south = [batch((minute, 100)) for minute in range(0, 300, 20)]
    meters = tw.stream(Meters(north=north, south=[batch(), *south]), rowtime="ts")
    rows = tw.connect().sql(HOURS, meters=meters).fetchall()
    assert sorted(rows) == [(BEGIN + timedelta(hours=hour), 303) for hour in range(5)]


def first_window(meters):
    """The first row of the sums by hour, of an input that does not end: None if there is none within 5 seconds."""
    result = tw.connect().sql(HOURS, meters=tw.stream(meters, rowtime="ts", bounded=False))
    found = []

    def read():
        for rows in result.changes():
            found.extend(rows.fetchall())
            return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(5)
    first = found[0] if found else None
    meters.is_over.set()
    reader.join(20)
    return first


class Endless(Meters):
    def __init__(self, **items):
        super().__init__(**items)
        self.is_over = threading.Event()

    def read(self, split, position):
        yield from super().read(split, position)
        self.is_over.wait()


def test_a_heartbeat_lets_results_come():
    rows = [batch((0, 1), (59, 2), (60, 4))]
    at_ten = BEGIN + timedelta(hours=1)
    assert first_window(Endless(north=rows, south=[tw.Heartbeat(at_ten)])) == (BEGIN, 3)
    # Without it the silent split holds them back, for 30 seconds.
    assert first_window(Endless(north=rows, south=[])) is None


def test_a_source_without_splits_has_heartbeats():
    class One(Endless):
        splits = property()  # has none

        def read(self, position):
            return super().read("all", position)

    assert not hasattr(One(all=[]), "splits")
    assert first_window(One(all=[batch((0, 7)), tw.Heartbeat(BEGIN + timedelta(hours=1))])) == (BEGIN, 7)


def test_a_heartbeat_has_a_time():
    at = datetime(2026, 1, 1, 10, tzinfo=timezone(timedelta(hours=1)))
    assert tw.Heartbeat(at).heartbeat_ms == tw.Heartbeat(BEGIN).heartbeat_ms == 1_767_258_000_000
    # Rows of that millisecond may come.
    assert tw.Heartbeat(datetime(1969, 12, 31, 23, 59, 59, 999_500)).heartbeat_ms == -1


class Ledger:
    """A sink with transactions."""

    def __init__(self):
        self.open, self.prepared, self.visible = [], {}, []

    def write(self, batch):
        self.open += [row[0] for row in batch.fetchall()]

    def prepare(self):
        handle = str(len(self.visible) + sum(map(len, self.prepared.values())))
        self.prepared[handle], self.open = self.open, []
        return handle

    def commit(self, handle):
        self.visible += self.prepared.pop(handle, [])

    def recover(self, handle):
        if handle is not None:
            self.commit(handle)
        self.open, self.prepared = [], {}


class Slow(Meters):
    """Yields slowly, and notes from where it was read."""

    def __init__(self, **items):
        super().__init__(**items)
        self.positions = []

    def read(self, split, position):
        self.positions.append((split, position))
        for item in super().read(split, position):
            time.sleep(0.02)
            yield item


def start(db, ledger, meters, **options):
    db.register("meters", meters)
    db.register_sink("ledger", ledger)
    db.sql("CREATE TABLE IF NOT EXISTS ledger (n BIGINT) WITH ('connector' = 'python', 'sink' = 'ledger')")
    return db.start("copy", "INSERT INTO ledger SELECT n FROM meters", snapshots="state", interval="50 ms", **options)


def numbers(first, count):
    return [batch(*((0, n) for n in range(at, at + 10))) for at in range(first, first + count, 10)]


def test_each_split_goes_on_where_it_was(tmp_path):
    db, ledger = tw.connect(tmp_path), Ledger()
    meters = Slow(north=numbers(0, 700), south=numbers(1000, 300))
    with start(db, ledger, meters):
        until = time.monotonic() + 20
        while len(ledger.visible) < 200 and time.monotonic() < until:
            time.sleep(0.01)
    assert 200 <= len(ledger.visible) < 1000
    assert start(db, ledger, meters, resume=True).wait(30)
    assert sorted(ledger.visible) == [*range(700), *range(1000, 1300)]
    assert sorted(meters.positions[:2]) == [("north", None), ("south", None)]
    assert {split for split, position in meters.positions[2:] if position is not None} == {"north", "south"}


def test_a_split_that_is_gone_must_have_ended(tmp_path):
    db, ledger = tw.connect(tmp_path), Ledger()
    meters = Slow(north=numbers(0, 1000), south=numbers(1000, 10))
    with start(db, ledger, meters):
        until = time.monotonic() + 20
        while len(ledger.visible) < 100 and time.monotonic() < until:
            time.sleep(0.01)
    with pytest.raises(tw.Error, match=r"splits\(\) does not list 'north'"):
        start(db, ledger, Slow(south=[]), resume=True).wait(30)
    # The other one had ended; a new one is read from its beginning.
    meters = Slow(north=meters.items["north"], east=numbers(2000, 10))
    assert start(db, ledger, meters, resume=True).wait(60)
    assert sorted(ledger.visible) == [*range(1010), *range(2000, 2010)]


@pytest.mark.parametrize(
    ("meters", "message"),
    [
        (Meters(north=["a text"]), "Could not|no position|arrow|Arrow|capsule|__arrow_c"),
        (type("Twice", (Meters,), {"splits": lambda self: ["north", "north"]})(north=[]), r"lists 'north' twice"),
        (type("Odd", (Meters,), {"read": lambda self, split, position: [3]})(north=[]), r"yields pairs .* this is a int"),
    ],
)
def test_mistakes_of_a_source_are_told(meters, message):
    with pytest.raises(tw.Error, match=message):
        tw.connect().sql("SELECT n FROM meters", meters=meters).fetchall()
