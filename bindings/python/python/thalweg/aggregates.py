"""Aggregate functions and table functions of Python."""

from __future__ import annotations

import collections.abc
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, overload

from .functions import (
    Function,
    _named,
    _OfPython,
    _sql_type,
    _sql_type_or_none,
    _unannotated,
    _vector_of,
    _vector_type_of,
)
from .records import fields_of, row_type

if TYPE_CHECKING:
    from . import _thalweg
    from ._thalweg import Array

__all__ = ["AggregateFunction", "TableFunction", "udaf", "udtf"]


class AggregateFunction(_OfPython):
    """An aggregate function that SQL can call once it is registered; :func:`udaf` makes it.

    The engine keeps the values of each group, in snapshots as well; the function gets them when the
    result of the group is wanted.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        result: object = None,
        deterministic: bool = True,
    ) -> None:
        super().__init__(function, name, result, deterministic)
        self.by_groups = isinstance(function, type)

    def __repr__(self) -> str:
        kind = "all groups at once" if self.by_groups else "group by group"
        return f"<thalweg.AggregateFunction {self.name}, {kind}>"

    def register(self, connection: _thalweg.Connection, name: str | None = None) -> None:
        """Checks its types and makes it known."""
        given = name or self.name
        call, result, nullable = self._by_groups() if self.by_groups else self._group_by_group()
        over_values = f"{given}$VALUES"
        connection.register_function(
            over_values,
            call,
            [None],
            result,
            by_rows=False,
            isolated=False,
            strict=[False],
            is_nullable=nullable,
            deterministic=self._deterministic,
        )
        connection.register_aggregate(given, over_values, result)

    def _group_by_group(self) -> tuple[Callable[[Array], list[Any]], str, bool]:
        function = self._function
        kind, width = self._vectors(function, 0)
        result, nullable = self._result_of(typing.get_type_hints(function, include_extras=True).get("return"))

        def call(values: Array) -> list[Any]:
            return [function(*group) for group in _groups(values, kind, width)]

        return call, result, nullable

    def _by_groups(self) -> tuple[Callable[[Array], Any], str, bool]:
        made: Any = self._function
        for method in ("update", "finish"):
            if not hasattr(made, method):
                raise TypeError(f"{self.name}: an aggregate of all groups at once has update() and finish()")
        kind, width = self._vectors(made.update, 2)
        if kind == "list":
            raise TypeError(f"{self.name}: update() takes vectors: polars.Series, pyarrow.Array or numpy.ndarray")
        result, nullable = self._result_of(typing.get_type_hints(made.finish, include_extras=True).get("return"))

        def call(values: Array) -> Any:
            state = made()
            state.update(*_flat(values, kind, width))
            returned = state.finish(len(values))
            if hasattr(returned, "__arrow_c_array__") or hasattr(returned, "__arrow_c_stream__"):
                return returned
            return list(returned)

        return call, result, nullable

    def _vectors(self, function: Callable[..., Any], skipped: int) -> tuple[str, int]:
        """As what the values of a group are wanted, and how many columns of them. The first ``skipped``
        parameters are not values."""
        import inspect

        hints = typing.get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters)[skipped:]
        kinds = set()
        for parameter in parameters:
            bare, _ = _unannotated(hints.get(parameter, list))
            kind = "list" if (typing.get_origin(bare) or bare) is list else _vector_of(bare)
            if kind is None or kind == "thalweg":
                raise TypeError(
                    f"{self.name}: {parameter} is {_named(bare)}; an aggregate takes the values of a group as "
                    "list[…], polars.Series, pyarrow.Array, numpy.ndarray or pandas.Series"
                )
            kinds.add(kind)
        if len(kinds) != 1:
            raise TypeError(f"{self.name}: an aggregate takes one kind of vectors, and at least one")
        return kinds.pop(), len(parameters)

    def _result_of(self, hint: object) -> tuple[str, bool]:
        if self._result is not None:
            return _sql_type(self._result)[0], True
        if hint is None:
            raise TypeError(f"{self.name}: the type of the result is missing; add a hint, or result=…")
        found = _vector_type_of(hint) if self.by_groups else _sql_type_or_none(hint)
        if found is None:
            raise TypeError(
                f"{self.name}: {_named(hint)} has no type in SQL; annotate it with one, such as "
                "Annotated[Decimal, 'DECIMAL(10, 2)']"
            )
        return found


def _groups(values: Array, kind: str, width: int) -> Iterator[tuple[Any, ...]]:
    """The values of each group, as that many vectors."""
    if kind == "list":
        for group in values.to_list():
            yield (group or [],) if width == 1 else tuple(_columns(group or [], width))
        return
    if kind == "polars":
        import polars

        groups: Any = polars.Series(values)
        empty = polars.Series([], dtype=groups.dtype.inner)
        for place in range(len(groups)):
            group = groups[place]
            group = empty if group is None else group
            yield (group,) if width == 1 else tuple(group.struct.field(name) for name in group.struct.fields)
        return
    columns, offsets = _arrow_columns(values, width)
    for begin, end in zip(offsets, offsets[1:]):
        yield tuple(_converted(column.slice(begin, end - begin), kind) for column in columns)


def _columns(rows: list[dict[str, Any]], width: int) -> list[list[Any]]:
    columns = [list(column) for column in zip(*(row.values() for row in rows))]
    return columns or [[] for _ in range(width)]


def _flat(values: Array, kind: str, width: int) -> list[Any]:
    """The numbers of the groups, then the values of all of them."""
    if kind == "polars":
        import polars

        groups: Any = polars.Series(values)
        lengths = groups.list.len().fill_null(0)
        numbers = polars.Series(range(len(groups)), dtype=polars.UInt32).repeat_by(lengths)
        numbers = numbers.explode().drop_nulls()
        flat = groups.filter(lengths > 0).explode()
        return [numbers] + ([flat] if width == 1 else [flat.struct.field(name) for name in flat.struct.fields])
    import pyarrow

    columns, offsets = _arrow_columns(values, width)
    numbers = pyarrow.array(
        [number for number in range(len(offsets) - 1) for _ in range(offsets[number + 1] - offsets[number])],
        pyarrow.uint32(),
    )
    return [_converted(column, kind) for column in [numbers, *columns]]


def _arrow_columns(values: Array, width: int) -> tuple[list[Any], list[int]]:
    """The values of all groups as arrays of pyarrow, and where those of each begin."""
    import pyarrow

    made: Any = pyarrow.array(values)
    offsets: list[int] = made.offsets.to_pylist()
    flat = made.values.slice(offsets[0], offsets[-1] - offsets[0])
    columns = [flat] if width == 1 else flat.flatten()
    views = pyarrow.types.is_string_view
    columns = [c.cast(pyarrow.string()) if views(c.type) else c for c in columns]
    return columns, [offset - offsets[0] for offset in offsets]


def _converted(column: Any, kind: str) -> Any:
    if kind == "numpy":
        return column.to_numpy(zero_copy_only=False)
    return column.to_pandas() if kind == "pandas" else column


class TableFunction(_OfPython):
    """A function that makes rows of a row; :func:`udtf` makes it."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        arguments: collections.abc.Sequence[object] | None = None,
        result: object = None,
        deterministic: bool = True,
    ) -> None:
        super().__init__(function, name, result, deterministic)
        self._arguments = arguments

    def __repr__(self) -> str:
        return f"<thalweg.TableFunction {self.name}>"

    def register(self, connection: _thalweg.Connection, name: str | None = None) -> None:
        """Checks its types and makes it known."""
        function = self._function

        def rows(*arguments: Any) -> list[Any]:
            return list(function(*arguments))

        rows.__wrapped__ = function  # type: ignore[attr-defined]
        rows.__name__ = self.name
        rows.__annotations__ = dict(getattr(function, "__annotations__", {}))
        scalar = Function(
            rows,
            name=self.name,
            rows=True,
            arguments=self._arguments,
            result=f"ARRAY<{self._row()}>",
            deterministic=self._deterministic,
        )
        scalar.register(connection, name)

    def _row(self) -> str:
        if self._result is not None:
            return _sql_type(self._result)[0]
        hint = typing.get_type_hints(self._function, include_extras=True).get("return")
        origin = typing.get_origin(hint)
        is_many = isinstance(origin, type) and issubclass(origin, collections.abc.Iterable)
        if not is_many or origin is tuple:
            raise TypeError(
                f"{self.name}: a table function returns rows; write -> Iterable[tw.Row[str, int]], "
                "or Iterable[…] of a dataclass, a NamedTuple or a plain type"
            )
        item = typing.get_args(hint)[0]
        fields = fields_of(item, self.name)
        return _sql_type(item)[0] if fields is None else row_type(fields)


@overload
def udaf(function: Callable[..., Any], /) -> AggregateFunction: ...
@overload
def udaf(
    function: None = None, /, *, name: str | None = ..., result: object = ..., deterministic: bool = ...
) -> Callable[[Callable[..., Any]], AggregateFunction]: ...
def udaf(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    result: object = None,
    deterministic: bool = True,
) -> AggregateFunction | Callable[[Callable[..., Any]], AggregateFunction]:
    """Makes an aggregate function, after ``db.register_function``.

    A function takes the values of one group, as ``list[…]``, ``polars.Series``, ``pyarrow.Array``,
    ``numpy.ndarray`` or ``pandas.Series`` as its hints say, and returns one value. A class takes those of many
    groups at once: ``update(groups, values)`` gets the number of the group of each value, and
    ``finish(count)`` returns a value for each group. DISTINCT and FILTER work as for other aggregates.
    """

    def made(of: Callable[..., Any]) -> AggregateFunction:
        return AggregateFunction(of, name=name, result=result, deterministic=deterministic)

    return made if function is None else made(function)


@overload
def udtf(function: Callable[..., Any], /) -> TableFunction: ...
@overload
def udtf(
    function: None = None,
    /,
    *,
    name: str | None = ...,
    arguments: collections.abc.Sequence[object] | None = ...,
    result: object = ...,
    deterministic: bool = ...,
) -> Callable[[Callable[..., Any]], TableFunction]: ...
def udtf(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    arguments: collections.abc.Sequence[object] | None = None,
    result: object = None,
    deterministic: bool = True,
) -> TableFunction | Callable[[Callable[..., Any]], TableFunction]:
    """Makes a table function, after ``db.register_function``: called for a row, it returns rows.

    SQL calls it by ``CROSS JOIN LATERAL TABLE(words(line)) AS t (word, length)``; with ``LEFT JOIN … ON TRUE``
    a row without results stays. Its hint says what the rows are: ``Iterable[tw.Row[str, int]]``, or
    ``Iterable`` of a dataclass, of a NamedTuple or of single values.
    """

    def made(of: Callable[..., Any]) -> TableFunction:
        return TableFunction(
            of, name=name, arguments=arguments, result=result, deterministic=deterministic
        )

    return made if function is None else made(function)
