"""Results of queries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from . import _thalweg

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from ._thalweg import RecordBatch

__all__ = ["Result"]

#: Rows that a notebook shows.
_SHOWN_ROWS = 20


class Result:
    """The result of a query, which runs each time that its rows are asked for.

    It can be handed to anything that reads ``__arrow_c_stream__``: ``polars.DataFrame(result)``,
    ``pyarrow.table(result)``, a query of DuckDB. Its rows are those at the end: a count that was
    updated is there once. :meth:`changes` has each update.
    """

    def __init__(self, query: _thalweg.Query) -> None:
        self._query = query

    @property
    def schema(self) -> list[tuple[str, str]]:
        """The names and SQL types of the columns."""
        return [(name, kind if nullable else f"{kind} NOT NULL") for name, kind, nullable in self._query.columns]

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _, _ in self._query.columns]

    @property
    def is_bounded(self) -> bool:
        """True if the query ends by itself."""
        return self._query.is_bounded

    def arrow(self) -> pyarrow.Table:
        """The whole result as a table of pyarrow."""
        import pyarrow

        return pyarrow.table(self._query.collect())

    def pl(self) -> polars.DataFrame:
        """The whole result as a data frame of Polars."""
        import polars

        return polars.DataFrame(self._query.collect())

    def df(self) -> pandas.DataFrame:
        """The whole result as a data frame of pandas, by pyarrow."""
        frame: pandas.DataFrame = self.arrow().to_pandas()
        return frame

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The whole result as tuples."""
        return self._query.collect().fetchall()

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row, or None; the query is stopped then."""
        batches = self._query.batches()
        try:
            for batch in batches:
                return batch.fetchall()[0]
        finally:
            batches.close()
        return None

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows as tuples, while the query runs."""
        for batch in self:
            yield from batch.fetchall()

    def changes(self) -> Changes:
        """Batches whose ``kinds`` say what each row does: "+I", "-U", "+U", "-D"."""
        return Changes(self._query)

    def explain(self) -> str:
        """How the query would run."""
        return self._query.explain()

    def __iter__(self) -> Iterator[RecordBatch]:
        return _batches(self._query, False)

    def __aiter__(self) -> AsyncIterator[RecordBatch]:
        return _batches_async(self._query, False)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._query.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._query.__arrow_c_schema__()

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.schema)
        return f"<thalweg.Result ({columns})>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the columns, and the first rows of a query that ends."""
        from html import escape

        cells = "".join(
            f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>" for name, kind in self.schema
        )
        body = ""
        if self.is_bounded:
            shown: list[tuple[Any, ...]] = []
            batches = self._query.batches()
            for batch in batches:
                shown.extend(batch.fetchall()[: _SHOWN_ROWS + 1 - len(shown)])
                if len(shown) > _SHOWN_ROWS:
                    break
            batches.close()
            for row in shown[:_SHOWN_ROWS]:
                body += "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>"
            if len(shown) > _SHOWN_ROWS:
                body += f'<tr><td colspan="{len(self.columns)}">…</td></tr>'
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


class Changes:
    """Every change of a result, in batches."""

    def __init__(self, query: _thalweg.Query) -> None:
        self._query = query

    def __iter__(self) -> Iterator[RecordBatch]:
        return _batches(self._query, True)

    def __aiter__(self) -> AsyncIterator[RecordBatch]:
        return _batches_async(self._query, True)


def _batches(query: _thalweg.Query, with_changes: bool) -> Iterator[RecordBatch]:
    batches = query.batches(with_changes=with_changes)
    try:
        yield from batches
    finally:
        batches.close()


async def _batches_async(query: _thalweg.Query, with_changes: bool) -> AsyncIterator[RecordBatch]:
    import asyncio

    batches = query.batches(with_changes=with_changes)
    try:
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            yield batch
    finally:
        batches.close()
