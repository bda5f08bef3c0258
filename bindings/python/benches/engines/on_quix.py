"""Quix Streams: programs over topics of a broker, whose address is in ``KAFKA_BROKER``.

The rows are in the topics before the clock starts. It runs from the first message that was processed to the last, so
joining the consumer group, which takes seconds, does not count. State is kept without changelog topics.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Producer
from quixstreams import Application

from .measured import Measured

Message = tuple[str, bytes, int]


class Run:
    """An application that stops when it has processed all messages."""

    def __init__(self, count: int) -> None:
        self.name = uuid.uuid4().hex
        self._left, self._begun, self._ended = count, 0.0, 0.0
        self.app = Application(
            os.environ["KAFKA_BROKER"],
            consumer_group=self.name,
            auto_offset_reset="earliest",
            use_changelog_topics=False,
            state_dir=tempfile.mkdtemp(),
            on_message_processed=self._processed,
            loglevel="ERROR",
        )

    def topic(self, name: str, messages: Iterable[Message], **formats: Any) -> Any:
        topic = self.app.topic(f"{name}-{self.name}", key_deserializer="str", **formats)
        producer = Producer({"bootstrap.servers": os.environ["KAFKA_BROKER"], "queue.buffering.max.messages": 10**7})
        for key, value, at_ms in messages:
            producer.produce(topic.name, value, key, timestamp=at_ms)
        producer.flush()
        return topic

    def _processed(self, topic: str, partition: int, offset: int) -> None:
        self._begun = self._begun or time.perf_counter()
        self._left -= 1
        if self._left == 0:
            self._ended = time.perf_counter()
            self.app.stop()

    def measured(self, checksum: Callable[[], object]) -> Measured:
        self.app.run()
        return self._ended - self._begun, checksum()


def words(table: Any) -> Measured:
    run = Run(table.num_rows)
    words = run.topic("words", ((word, word.encode(), 0) for word in table["word"].to_pylist()), value_deserializer="str")
    counts: dict[str, int] = {}

    def count(word: str, state: Any) -> int:
        n = state.get("n", 0) + 1
        state.set("n", n)
        counts[word] = n
        return n

    run.app.dataframe(words).apply(count, stateful=True)
    return run.measured(lambda: (sum(counts.values()), len(counts)))


def times_ms(table: Any) -> Any:
    import pyarrow.compute as pc

    return pc.divide(table["ts"].cast("int64"), 1000).to_pylist()


def windows(table: Any) -> Measured:
    run = Run(table.num_rows)
    rows = zip(map(str, table["k"].to_pylist()), table["x"].to_pylist(), times_ms(table))
    messages = ((key, json.dumps(x).encode(), at_ms) for key, x, at_ms in rows)
    topic = run.topic("rows", messages, value_deserializer="json")
    sums: dict[Any, int] = {}

    def emit(window: Any, key: Any, at_ms: int, headers: Any) -> None:
        sums[key, window["start"]] = window["value"]

    # Each update is emitted: final results would be those of windows that a later row of their key closes.
    summed = run.app.dataframe(topic).tumbling_window(60_000, grace_ms=1_000).sum().current()
    summed.update(emit, metadata=True)
    return run.measured(lambda: (sum(sums.values()), len(sums)))


def join(tables: Any) -> Measured:
    run = Run(sum(table.num_rows for table in tables))
    frames = []
    for name, table in zip(("orders", "payments"), tables):
        rows = zip(map(str, table["order_id"].to_pylist()), table["x"].to_pylist(), times_ms(table))
        messages = ((key, json.dumps({name: x}).encode(), at_ms) for key, x, at_ms in rows)
        frames.append(run.app.dataframe(run.topic(name, messages, value_deserializer="json")))
    out: list[int] = []
    joined = frames[0].join_interval(frames[1], backward_ms=60_000, forward_ms=60_000, grace_ms=62_000)
    joined.update(lambda row: out.append(row["orders"] + row["payments"]))
    return run.measured(lambda: (sum(out), len(out)))


for workload in (windows, join):
    workload.also_counts = (times_ms,)  # type: ignore[attr-defined]
