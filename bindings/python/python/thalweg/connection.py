"""Connections, and the tables that queries can read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

from . import _thalweg
from . import process as process_functions
from .aggregates import AggregateFunction, TableFunction
from .errors import Error
from .functions import Function
from .jobs import Job, JobRequest, JobStart, StartsJobs
from .process import KeyedProcess
from .quantities import milliseconds
from .result import Result

if TYPE_CHECKING:
    from datetime import timedelta

    from .contracts import Sink
    from .remote import RemoteConnection

__all__ = ["Connection", "Stream", "connect", "run", "stream"]

@overload
def connect(
    path: os.PathLike[str] | None = None,
    *,
    settings: Mapping[str, str] | None = ...,
    workers: int | None = ...,
    memory_limit: str | None = ...,
    roots: Iterable[str | os.PathLike[str]] = ...,
) -> Connection: ...
@overload
def connect(
    path: str,
    *,
    token: str,
    settings: Mapping[str, str] | None = ...,
) -> RemoteConnection: ...
@overload
def connect(
    path: str,
    *,
    settings: Mapping[str, str] | None = ...,
    workers: int | None = ...,
    memory_limit: str | None = ...,
    roots: Iterable[str | os.PathLike[str]] = ...,
) -> Connection: ...
def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    token: str | None = None,
    settings: Mapping[str, str] | None = None,
    workers: int | None = None,
    memory_limit: str | None = None,
    roots: Iterable[str | os.PathLike[str]] = (),
) -> Connection | RemoteConnection:
    """Opens the engine in this process; or a server that runs, by its URL and a token of it.

    ``path`` is the folder that relative paths in statements start from, by default the current one.
    Files are read and written in it and in the folders of ``roots`` alone. ``settings`` are set as by
    ``SET 'key' = 'value'``. ``workers`` and ``memory_limit`` (such as ``"2gb"``) bound each query.
    """
    text = os.fspath(path) if path is not None else os.getcwd()
    if "://" in text:
        if workers is not None or memory_limit is not None or list(roots):
            raise TypeError("workers, memory_limit and roots are for the engine in this process; a server has its own")
        from .remote import RemoteConnection

        return RemoteConnection(text, token, settings or {})
    if token is not None:
        raise TypeError("a token is for a server: connect(\"http://127.0.0.1:7373\", token=…)")
    folder = os.path.abspath(text)
    allowed = [folder, *(os.path.abspath(os.fspath(root)) for root in roots)]
    pairs = [(key, str(value)) for key, value in (settings or {}).items()]
    return Connection(_thalweg.Connection(folder, allowed, pairs, workers, memory_limit))


def run(
    path: str | os.PathLike[str],
    /,
    *,
    params: Mapping[str, object] | None = None,
    settings: Mapping[str, str] | None = None,
    workers: int | None = None,
    memory_limit: str | None = None,
    roots: Iterable[str | os.PathLike[str]] = (),
    **tables: Any,
) -> Result:
    """Executes the statements of a file, and returns the result of the last one.

    Relative paths in it start from its folder, as for the command ``thalweg run``. INSERT statements are waited
    for; a query that stands last runs when its rows are asked for. The rest is as for :func:`connect` and
    ``Connection.sql``.
    """
    file = os.path.abspath(os.fspath(path))
    with open(file, encoding="utf-8") as opened:
        text = opened.read()
    db = connect(os.path.dirname(file), settings=settings, workers=workers, memory_limit=memory_limit, roots=roots)
    try:
        return db.sql(text, params, **tables)
    except Error as error:
        if sys.version_info >= (3, 11):
            error.add_note(f"in {os.fspath(path)}")
        raise


class Stream:
    """A table with a row time; :func:`stream` makes it."""

    def __init__(self, data: Any, rowtime: str | None, delay_ms: int, bounded: bool) -> None:
        self.data = data
        self.rowtime = rowtime
        self.delay_ms = delay_ms
        self.bounded = bounded

    def __repr__(self) -> str:
        time = f", rowtime={self.rowtime!r}, delay={self.delay_ms} ms" if self.rowtime else ""
        return f"<thalweg.Stream of {type(self.data).__name__}{time}>"


def stream(
    data: Any,
    *,
    rowtime: str | None = None,
    delay: str | float | timedelta = 0,
    bounded: bool = True,
) -> Stream:
    """A table whose rows have a time, for windows and other operators of event time.

    ``data`` is anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``, or a callable that
    returns such a thing; it is then called for each query and read while the query runs. A :class:`Source`
    or :class:`SplitSource` can be read by jobs with snapshots. Rows may come up to ``delay`` later than
    newer ones: ``"5 s"``, seconds, or a ``timedelta``. What does not end by itself has ``bounded=False``.
    """
    return Stream(data, rowtime, milliseconds(delay), bounded)


def _given(name: str, table: Any) -> tuple[str, Any, str | None, int, bool]:
    if isinstance(table, Stream):
        return name, _readable(name, table.data), table.rowtime, table.delay_ms, table.bounded
    return name, _readable(name, table), None, 0, True


def _literals(params: Mapping[str, object] | None) -> dict[str, str] | None:
    if params is None:
        return None
    from .literals import literals

    return literals(params)


def _readable(name: str, data: Any) -> Any:
    """What the engine can read; pandas of before 2.2 goes through pyarrow."""
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return data
    if type(data).__module__.partition(".")[0] == "pandas":
        import pyarrow

        return pyarrow.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "fetch_record_batch"):  # DuckDB before it had the capsule interface
        return data.fetch_record_batch()
    if callable(data) or (hasattr(data, "read") and hasattr(data, "schema")):
        return data
    raise TypeError(
        f"table {name}: {type(data).__name__} has neither __arrow_c_stream__ nor "
        "__arrow_c_array__, and is no callable that returns such a thing; "
        "rows of Python become a table by pyarrow.Table.from_pylist or polars.DataFrame"
    )


class Connection(StartsJobs[Job]):
    """The engine in this process: what was declared in it, and how it runs."""

    def __init__(self, inner: _thalweg.Connection) -> None:
        self._inner = inner
        self._jobs: dict[str, Job] = {}

    def sql(
        self,
        query: str,
        /,
        params: Mapping[str, object] | None = None,
        **tables: Any,
    ) -> Result:
        """Executes statements, and returns the result of the last one.

        A query runs when its rows are asked for. Tables are given by keyword: anything with
        ``__arrow_c_stream__`` or ``__arrow_c_array__``, a callable, or :func:`stream`. A value of
        ``params`` stands in the statement where ``${name}`` does, as a literal.
        """
        given = [_given(name, table) for name, table in tables.items()]
        return Result(self._inner.sql(query, given, _literals(params)))

    def register(self, name: str, table: Any) -> None:
        """Declares a table for all later statements, in place of any of the same name."""
        self._inner.register(_given(name, table))

    def register_sink(self, name: str, sink: Sink | Callable[[_thalweg.RecordBatch], object]) -> None:
        """Gives a name to something that a table writes into by
        ``WITH ('connector' = 'python', 'sink' = 'name')``.

        ``sink`` has a method ``write(batch)``, or is called itself; ``flush()`` and ``close()`` are called
        where it has them. With ``prepare() -> str``, ``commit(handle)`` and ``recover(handle)`` it is
        transactional in jobs with snapshots: :class:`TransactionalSink` says what is promised.
        """
        self._inner.register_sink(name, sink)

    def register_function(
        self,
        function: Function | AggregateFunction | TableFunction | Callable[..., Any],
        name: str | None = None,
    ) -> None:
        """Makes a function known to SQL: one of :func:`udf`, :func:`udaf` or :func:`udtf`, or a plain one,
        which is then wrapped as by :func:`udf`."""
        if not isinstance(function, (Function, AggregateFunction, TableFunction)):
            function = Function(function)
        function.register(self._inner, name)

    def register_process(
        self, name: str, process: type[KeyedProcess[Any, Any, Any]], relation: str, *, key: str
    ) -> None:
        """Makes a relation of what a process function makes of the rows of another one, a table or a view.

        Queries read it under ``name``, as they read a view. The rows of a key, by the column ``key``, come in
        the order of their input.
        """
        process_functions.register(self._inner, name, process, relation, key)

    def _start(self, request: JobRequest) -> Job:
        before = self._jobs.get(request.name)
        if before is not None:
            before.stop()
            before._ended()
        settings = []
        if request.snapshots is not None:
            settings.append(("execution.checkpointing.dir", os.fspath(request.snapshots)))
        if request.interval is not None:
            settings.append(("execution.checkpointing.interval", request.interval))
        given = [_given(table, data) for table, data in request.tables.items()]
        resume = request.resume
        start = JobStart(
            request.name,
            request.sql,
            settings,
            resume is not False,
            None if isinstance(resume, bool) else resume,
            _literals(request.params),
            request.drop_state,
            request.overwrite,
        )
        job = Job(self._inner.start(start, given))
        self._jobs[request.name] = job
        return job

    @property
    def jobs(self) -> list[Job]:
        """The jobs that were started."""
        return list(self._jobs.values())

    def close(self) -> None:
        """Stops its jobs, and waits for them."""
        for job in self._jobs.values():
            job.stop()
        for job in self._jobs.values():
            job._ended()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        running = sum(job.state in ("starting", "running") for job in self._jobs.values())
        return f"<thalweg.Connection in process, {running} jobs running>"
