"""Bytewax: dataflows over lists, in this process."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, TestingSource, run_main

from .measured import Measured, timed


def words(table: Any) -> Measured:
    words, out = table["word"].to_pylist(), []
    flow = Dataflow("words")
    stream = op.input("in", flow, TestingSource(words, batch_size=1_000))
    keyed = op.key_on("key", stream, lambda word: word)
    counted = op.stateful_map("count", keyed, lambda n, _: ((n or 0) + 1, (n or 0) + 1))
    op.output("out", counted, TestingSink(out))

    def checksum(_: object) -> object:
        counts = dict(out)
        return sum(counts.values()), len(counts)

    return timed(lambda: run_main(flow), checksum)


def windows(table: Any) -> Measured:
    times = [time.replace(tzinfo=timezone.utc) for time in table["ts"].to_pylist()]
    rows = list(zip(map(str, table["k"].to_pylist()), times, table["x"].to_pylist()))
    out: list[Any] = []
    flow = Dataflow("windows")
    stream = op.input("in", flow, TestingSource(rows, batch_size=1_000))
    keyed = op.map("key", stream, lambda row: (row[0], row))
    clock = win.EventClock(ts_getter=lambda row: row[1], wait_for_system_duration=timedelta(seconds=1))
    windower = win.TumblingWindower(
        length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=timezone.utc)
    )
    summed = win.fold_window(
        "sum", keyed, clock, windower, lambda: 0, lambda total, row: total + row[2], lambda a, b: a + b
    )
    op.output("out", summed.down, TestingSink(out))

    return timed(lambda: run_main(flow), lambda _: (sum(total for _, (_, total) in out), len(out)))


def join(tables: Any) -> Measured:
    sides = [list(zip(map(str, table["order_id"].to_pylist()), table["x"].to_pylist())) for table in tables]
    out: list[Any] = []
    flow = Dataflow("join")
    orders = op.input("orders", flow, TestingSource(sides[0], batch_size=1_000))
    payments = op.input("payments", flow, TestingSource(sides[1], batch_size=1_000))
    op.output("out", op.join("join", orders, payments), TestingSink(out))

    return timed(lambda: run_main(flow), lambda _: (sum(a + b for _, (a, b) in out), len(out)))
