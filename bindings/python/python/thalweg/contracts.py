"""What objects of Python promise that tables read from or write into.

They are protocols: an object need not inherit from them, and type checkers see what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ._thalweg import RecordBatch

__all__ = ["Heartbeat", "Sink", "Source", "SplitSource", "TransactionalSink"]


class Heartbeat:
    """What a source yields when it has no rows and knows that none to come is older than a time: results that
    wait for that time need not wait for the next row.

    ``at`` is in UTC if it has no zone. Of a source with splits it holds for the split.
    """

    __slots__ = ("heartbeat_ms",)

    def __init__(self, at: datetime) -> None:
        if at.tzinfo is None:
            at = at.replace(tzinfo=timezone.utc)
        #: Down to the millisecond, as row times are.
        self.heartbeat_ms = (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)

    def __repr__(self) -> str:
        return f"<thalweg.Heartbeat at {self.heartbeat_ms} ms>"


class Source(Protocol):
    """Rows that can be read again from any position: :func:`stream` or ``Connection.register`` make a table of it.

    The same position must lead to the same rows, as long as a snapshot may hold it.
    """

    @property
    def schema(self) -> Any:
        """The columns: anything with ``__arrow_c_schema__``."""
        ...

    def read(self, position: str | None) -> Iterable[tuple[Any, str] | Heartbeat]:
        """Batches from a position on, each with the position behind it; from the start for None. Called by a thread
        of its own."""
        ...


class SplitSource(Protocol):
    """A :class:`Source` with several parts that have a sequence of their own, as a topic has partitions.

    Rows are judged late by what came before them in their own split, and a split that lags holds results back,
    until it has ended or was silent for ``watermark.idle-timeout``.
    """

    @property
    def schema(self) -> Any:
        """The columns: anything with ``__arrow_c_schema__``."""
        ...

    def splits(self) -> Iterable[str]:
        """The names of the splits, once for each job that starts. One that a snapshot knows must be among them,
        unless it had ended."""
        ...

    def read(self, split: str, position: str | None) -> Iterable[tuple[Any, str] | Heartbeat]:
        """As that of a source, of one split. Each split is read by a thread of its own."""
        ...


class Sink(Protocol):
    """What takes the rows of a table. It can have ``flush()``, which is called when nothing more waits, and
    ``close()``, which is called when everything was written.

    Without transactions rows may come twice after a crash.
    """

    def write(self, batch: RecordBatch, /) -> object:
        """Takes rows; ``batch.kinds`` says what each of them does."""
        ...


class TransactionalSink(Sink, Protocol):
    """A sink whose rows are visible once, whatever happens to the job, if it takes snapshots.

    Rows that were written are not visible before they are committed.
    """

    def prepare(self) -> str:
        """Makes what was written since the last call durable, and returns a text that names it."""
        ...

    def commit(self, handle: str, /) -> object:
        """Makes visible what a text names; the snapshot that holds the text is kept. May be called again."""
        ...

    def recover(self, handle: str | None, /) -> object:
        """The job starts. Commits what the text of its snapshot names, None if it has none, and drops everything
        else that was prepared."""
        ...
