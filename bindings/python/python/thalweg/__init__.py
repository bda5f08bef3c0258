"""Thalweg: stream processing for one machine, in SQL, over Arrow tables, files and streams.

    import thalweg as tw

    db = tw.connect()
    q = db.sql("SELECT item, SUM(amount) AS total FROM orders GROUP BY item", orders=df)
    q.pl()

The engine runs in this process, on every core. Nothing else has to be installed: pyarrow, Polars,
pandas and DuckDB are used where they are there.
"""

import atexit as _atexit
from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._thalweg import Array, RecordBatch, __version__
from ._thalweg import shut_down as _shut_down
from .aggregates import AggregateFunction, TableFunction, udaf, udtf
from .connection import Connection, Stream, connect, run, stream
from .contracts import Heartbeat, Sink, Source, SplitSource, TransactionalSink
from .errors import DataError, Error, FunctionError, SqlError, SqlWarning, StateError
from .functions import Function, udf
from .jobs import Job, Why
from .process import Context, KeyedProcess
from .records import Row
from .result import Result
from .server import Server, serve

__all__ = [
    "AggregateFunction",
    "Array",
    "Connection",
    "Context",
    "DataError",
    "Error",
    "Function",
    "FunctionError",
    "Heartbeat",
    "Job",
    "KeyedProcess",
    "RecordBatch",
    "Result",
    "Row",
    "Server",
    "Sink",
    "Source",
    "SplitSource",
    "SqlError",
    "SqlWarning",
    "StateError",
    "Stream",
    "TableFunction",
    "TransactionalSink",
    "Why",
    "__version__",
    "connect",
    "load_ipython_extension",
    "run",
    "serve",
    "stream",
    "testing",
    "udaf",
    "udf",
    "udtf",
]

if _TYPE_CHECKING:
    from . import testing

# Threads of the engine end before the interpreter does.
_atexit.register(_shut_down)


def __getattr__(name: str) -> object:
    """Imports what only tests need when it is asked for."""
    if name == "testing":
        from importlib import import_module

        return import_module(".testing", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(ipython: object) -> None:
    """Called by ``%load_ext thalweg``: makes the cell magic ``%%tw`` known."""
    from .notebook import load

    load(ipython)
