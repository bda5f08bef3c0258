"""Values of Python as literals of SQL."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Mapping

__all__ = ["literals"]


def literals(params: Mapping[str, object] | None) -> dict[str, str] | None:
    """The values of parameters as they stand in a statement."""
    return None if params is None else {name: literal(value) for name, value in params.items()}


def literal(value: object) -> str:
    """The value as it stands in a statement. A text is quoted, so that it is only ever a text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"CAST('{value}' AS DOUBLE)"
        return f"CAST({value!r} AS DOUBLE)"
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        utc = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        milliseconds = (utc - datetime.datetime(1970, 1, 1)) // datetime.timedelta(milliseconds=1)
        return f"TO_TIMESTAMP_LTZ({milliseconds}, 3)"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, datetime.time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, datetime.timedelta):
        sign = "-" if value < datetime.timedelta(0) else ""
        milliseconds = abs(value) // datetime.timedelta(milliseconds=1)
        return f"INTERVAL '{sign}{milliseconds // 1000}.{milliseconds % 1000:03}' SECOND"
    if isinstance(value, (list, tuple)):
        return "ARRAY[" + ", ".join(literal(item) for item in value) + "]"
    raise TypeError(f"a value of {type(value).__name__} has no literal in SQL")
