"""Thalweg: stream processing for one machine, in SQL, over Arrow tables, files and streams.

    import thalweg as tw

    db = tw.connect()
    q = db.sql("SELECT item, SUM(amount) AS total FROM orders GROUP BY item", orders=df)
    q.pl()

The engine runs in this process, on every core. Nothing else has to be installed: pyarrow, Polars,
pandas and DuckDB are used where they are there.
"""

import atexit as _atexit

from ._thalweg import Array, RecordBatch, __version__
from ._thalweg import shut_down as _shut_down
from .connection import Connection, Stream, connect, stream
from .errors import DataError, Error, FunctionError, SqlError, SqlWarning, StateError
from .functions import Function, udf
from .jobs import Job, Why
from .result import Result

__all__ = [
    "Array",
    "Connection",
    "DataError",
    "Error",
    "Function",
    "FunctionError",
    "Job",
    "RecordBatch",
    "Result",
    "SqlError",
    "SqlWarning",
    "StateError",
    "Stream",
    "Why",
    "__version__",
    "connect",
    "stream",
    "udf",
]

# Threads of the engine end before the interpreter does.
_atexit.register(_shut_down)
