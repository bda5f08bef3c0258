"""Thalweg: stream processing for one machine, in SQL, over Arrow tables, files and streams.

    import thalweg as tw

    db = tw.connect()
    q = db.sql("SELECT item, SUM(amount) AS total FROM orders GROUP BY item", orders=df)
    q.pl()

The engine runs in this process, on every core. Nothing else has to be installed: pyarrow, Polars,
pandas and DuckDB are used where they are there.
"""

import atexit as _atexit

from . import testing
from ._thalweg import Array, RecordBatch, __version__
from ._thalweg import shut_down as _shut_down
from .aggregates import AggregateFunction, TableFunction, udaf, udtf
from .connection import Connection, Stream, connect, stream
from .errors import DataError, Error, FunctionError, SqlError, SqlWarning, StateError
from .functions import Function, udf
from .jobs import Job, Why
from .process import Context, KeyedProcess
from .records import Row
from .result import Result

__all__ = [
    "AggregateFunction",
    "Array",
    "Connection",
    "Context",
    "DataError",
    "Error",
    "Function",
    "FunctionError",
    "Job",
    "KeyedProcess",
    "RecordBatch",
    "Result",
    "Row",
    "SqlError",
    "SqlWarning",
    "StateError",
    "Stream",
    "TableFunction",
    "Why",
    "__version__",
    "connect",
    "stream",
    "testing",
    "udaf",
    "udf",
    "udtf",
]

# Threads of the engine end before the interpreter does.
_atexit.register(_shut_down)
