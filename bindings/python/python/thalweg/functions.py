"""Functions of Python that SQL can call."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from . import _thalweg
from .quantities import in_bytes, milliseconds

if TYPE_CHECKING:
    from ._thalweg import Array
    from .isolated import Limits

__all__ = ["Function", "udf"]

_SCALARS = {
    "bool": "BOOLEAN",
    "int": "BIGINT",
    "float": "DOUBLE",
    "str": "STRING",
    "bytes": "BYTES",
    "datetime.date": "DATE",
    "datetime.time": "TIME(3)",
    "datetime.datetime": "TIMESTAMP(6)",
    "datetime.timedelta": "INTERVAL DAY TO SECOND",
}

#: Classes of vectors, by module and name, and how an array becomes one.
_VECTORS: dict[tuple[str, str], str] = {
    ("polars", "Series"): "polars",
    ("pyarrow", "Array"): "pyarrow",
    ("pyarrow", "ChunkedArray"): "pyarrow",
    ("numpy", "ndarray"): "numpy",
    ("pandas", "Series"): "pandas",
    ("thalweg", "Array"): "thalweg",
    ("builtins", "Array"): "thalweg",
}

_Callable = typing.TypeVar("_Callable", bound=Callable[..., Any])


class _OfPython:
    """What a function or class of Python becomes for SQL. Calling it calls that, so that it can be tested
    without the engine."""

    def __init__(self, function: Callable[..., Any], name: str | None, result: object, deterministic: bool) -> None:
        self._function = function
        self.name: str = name or str(getattr(function, "__name__", type(function).__name__))
        self._result = result
        self._deterministic = deterministic
        self.__doc__ = getattr(function, "__doc__", None)
        self.__wrapped__ = function

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._function(*arguments, **keywords)


class Function(_OfPython):
    """A function that SQL can call once it is registered; :func:`udf` makes it.

    Calling it calls the function of Python, so that it can be tested without the engine.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        rows: bool = False,
        arguments: Sequence[object] | None = None,
        result: object = None,
        deterministic: bool = True,
        isolated: Limits | None = None,
    ) -> None:
        super().__init__(function, name, result, deterministic)
        self._limits = isolated
        self.by_rows = rows
        self._arguments = arguments

    def __repr__(self) -> str:
        kind = "row by row" if self.by_rows else "whole columns"
        kind += "" if self._limits is None else ", in processes of its own"
        return f"<thalweg.Function {self.name}, {kind}>"

    def register(self, connection: _thalweg.Connection, name: str | None = None) -> None:
        """Checks its types and makes it known."""
        parameters, returned = self._hints()
        result, nullable = self._result_type(returned)
        if self.by_rows:
            types_of = [self._row_type(parameter, hint) for parameter, hint in parameters]
            call: Callable[..., Any] = self._function
        else:
            types_of = [(self._vector_type(parameter, hint), True) for parameter, hint in parameters]
            call = self._over_vectors([hint for _, hint in parameters])
        if self._arguments is not None:
            types_of = [(_sql_type(given)[0], accepts) for given, (_, accepts) in zip(self._arguments, types_of)]
        if self._limits is not None:
            from .isolated import Isolated

            kinds = [_vector_of(_unannotated(hint)[0]) or "thalweg" for _, hint in parameters]
            strict = [not accepts for _, accepts in types_of]
            call = Isolated(self.name, self._function, self.by_rows, kinds, strict, self._limits)
        connection.register_function(
            name or self.name,
            call,
            [kind for kind, _ in types_of],
            result,
            by_rows=self.by_rows,
            isolated=self._limits is not None,
            strict=[not accepts for _, accepts in types_of],
            is_nullable=nullable,
            deterministic=self._deterministic,
        )

    def _hints(self) -> tuple[list[tuple[str, object]], object]:
        import inspect

        target = self._function if inspect.isroutine(self._function) else type(self._function).__call__
        try:
            hints = typing.get_type_hints(target, include_extras=True)
        except NameError as error:
            raise TypeError(f"{self.name}: a hint names what is not there: {error}") from error
        parameters: list[tuple[str, object]] = []
        for parameter in inspect.signature(self._function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                if self._arguments is None:
                    raise TypeError(
                        f"{self.name}: *{parameter.name} has no number of arguments; say which "
                        "with arguments=[…]"
                    )
                parameters += [(parameter.name, None)] * (len(self._arguments) - len(parameters))
            elif parameter.kind is not parameter.KEYWORD_ONLY:
                parameters.append((parameter.name, hints.get(parameter.name)))
        if self._arguments is not None and len(self._arguments) != len(parameters):
            raise TypeError(
                f"{self.name} has {len(parameters)} parameters, and {len(self._arguments)} "
                "types of arguments are given"
            )
        return parameters, hints.get("return")

    def _result_type(self, hint: object) -> tuple[str, bool]:
        if self._result is not None:
            text, nullable = _sql_type(self._result)
            return text, nullable or hint is None or _sql_nullable(hint)
        if hint is None:
            raise TypeError(f"{self.name}: the type of the result is missing; add a hint, or result=…")
        bare, _ = _unannotated(hint)
        if not self.by_rows and _vector_of(bare) is not None:
            found = _vector_type_of(hint)
            if found is not None:
                return found
            raise TypeError(
                f"{self.name}: the type of the values is missing; write -> "
                f"Annotated[{_named(bare)}, …] with a type of SQL, Polars or pyarrow"
            )
        if not self.by_rows:
            raise TypeError(
                f"{self.name} returns {_named(hint)}, which is one value; a function over whole columns "
                "returns a polars.Series or a pyarrow.Array, and @udf(rows=True) is called for each row"
            )
        return _sql_type(hint)

    def _row_type(self, parameter: str, hint: object) -> tuple[str | None, bool]:
        if hint is None:
            return None, True
        if _vector_of(_unannotated(hint)[0]) is not None:
            raise TypeError(f"{self.name}: {parameter} is a vector, and rows=True gives one value")
        return _sql_type(hint)

    def _vector_type(self, parameter: str, hint: object) -> str | None:
        if hint is None:
            return None
        bare, extras = _unannotated(hint)
        if _vector_of(bare) is None:
            raise TypeError(
                f"{self.name}: {parameter} is {_named(hint)}, which is one value; a function over whole "
                "columns takes polars.Series or pyarrow.Array, and @udf(rows=True) is called for each row"
            )
        for extra in extras:
            found = _sql_type_or_none(extra)
            if found is not None:
                return found[0]
        return None

    def _over_vectors(self, hints: list[object]) -> Callable[..., Any]:
        into = [_CONVERSIONS[_vector_of(_unannotated(hint)[0]) or "thalweg"] for hint in hints]
        function = self._function

        def over_vectors(*arrays: Array) -> Any:
            returned = function(*(convert(array) for convert, array in zip(into, arrays)))
            if hasattr(returned, "__arrow_c_array__") or hasattr(returned, "__arrow_c_stream__"):
                return returned
            import pyarrow

            return pyarrow.array(returned)

        return over_vectors


def _to_polars(array: Array) -> Any:
    import polars

    return polars.Series(array)


def _to_pyarrow(array: Array) -> Any:
    import pyarrow

    made = pyarrow.array(array)
    # Few kernels of pyarrow know views of texts.
    return made.cast(pyarrow.string()) if pyarrow.types.is_string_view(made.type) else made


def _to_numpy(array: Array) -> Any:
    return _to_pyarrow(array).to_numpy(zero_copy_only=False)


def _to_pandas(array: Array) -> Any:
    return _to_pyarrow(array).to_pandas()


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "polars": _to_polars,
    "pyarrow": _to_pyarrow,
    "numpy": _to_numpy,
    "pandas": _to_pandas,
    "thalweg": lambda array: array,
}


def _vector_of(hint: object) -> str | None:
    hint = typing.get_origin(hint) or hint
    if not isinstance(hint, type):
        return None
    for base in hint.__mro__:
        found = _VECTORS.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            return found
    return None


def _unannotated(hint: object) -> tuple[object, tuple[object, ...]]:
    if typing.get_origin(hint) is typing.Annotated:
        bare, *extras = typing.get_args(hint)
        return bare, tuple(extras)
    return hint, ()


def _named(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _vector_type_of(hint: object) -> tuple[str, bool] | None:
    """The SQL type of the values of a vector, as its annotation says."""
    for extra in _unannotated(hint)[1]:
        found = _sql_type_or_none(extra)
        if found is not None:
            return found[0], True
    return None


def _sql_nullable(hint: object) -> bool:
    return type(None) in typing.get_args(_unannotated(hint)[0])


def _sql_type(hint: object) -> tuple[str, bool]:
    """The SQL type of a hint, and whether it can be None."""
    found = _sql_type_or_none(hint)
    if found is None:
        raise TypeError(
            f"{_named(hint)} has no type in SQL; annotate it with one, such as "
            "Annotated[Decimal, 'DECIMAL(10, 2)']"
        )
    return found


def _sql_type_or_none(hint: object) -> tuple[str, bool] | None:
    if isinstance(hint, str):
        return hint, True
    bare, extras = _unannotated(hint)
    for extra in extras:
        found = _sql_type_or_none(extra)
        if found is not None:
            return found[0], _sql_nullable(bare)
    arguments = [argument for argument in typing.get_args(bare) if argument is not type(None)]
    if typing.get_origin(bare) in (typing.Union, types.UnionType):
        inner = _sql_type_or_none(arguments[0]) if len(arguments) == 1 else None
        return None if inner is None else (inner[0], True)
    if typing.get_origin(bare) is list and arguments:
        item = _sql_type_or_none(arguments[0])
        return None if item is None else (f"ARRAY<{item[0]}>", False)
    if isinstance(bare, type):
        name = bare.__name__ if bare.__module__ == "builtins" else f"{bare.__module__}.{bare.__name__}"
        if name in _SCALARS:
            return _SCALARS[name], False
    return _arrow_type(bare)


def _arrow_type(given: object) -> tuple[str, bool] | None:
    """The SQL type of a type of pyarrow or Polars."""
    if hasattr(given, "__arrow_c_schema__") and not isinstance(given, type):
        return _thalweg.sql_type_of(given), True
    module = type(given).__module__ if not isinstance(given, type) else given.__module__
    if module.partition(".")[0] == "polars":
        import polars

        return _thalweg.sql_type_of(polars.Series([], dtype=typing.cast(Any, given))), True
    return None


@overload
def udf(function: Callable[..., Any], /) -> Function: ...
@overload
def udf(
    function: None = None,
    /,
    *,
    name: str | None = ...,
    rows: bool = ...,
    arguments: Sequence[object] | None = ...,
    result: object = ...,
    deterministic: bool = ...,
    isolated: bool = ...,
    processes: int = ...,
    time_limit: str | float | None = ...,
    memory_limit: str | int | None = ...,
) -> Callable[[Callable[..., Any]], Function]: ...
def udf(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    rows: bool = False,
    arguments: Sequence[object] | None = None,
    result: object = None,
    deterministic: bool = True,
    isolated: bool = False,
    processes: int = 1,
    time_limit: str | float | None = None,
    memory_limit: str | int | None = None,
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Makes a function that SQL can call, after ``db.register_function``.

    It takes and returns whole columns: ``polars.Series``, ``pyarrow.Array``, ``numpy.ndarray`` or
    ``pandas.Series``, as its hints say. With ``rows=True`` it takes and returns single values and is
    called for each row, which is slower; EXPLAIN says so. Types come from the hints; ``arguments`` and
    ``result`` give them where hints cannot, as text (``"DECIMAL(10, 2)"``) or as types of pyarrow or
    Polars. A function whose results are not the same for the same arguments has ``deterministic=False``.

    With ``isolated=True`` it runs in ``processes`` of its own, over shared memory: it needs pyarrow, and must be
    found in a module (or cloudpickle be installed). ``time_limit`` (``"500 ms"``, seconds) holds for a batch of
    rows, ``memory_limit`` (``"512mb"``, bytes) for what each process allocates; a function that exceeds one of
    them fails the query.
    """
    limits = None
    if isolated:
        from .isolated import Limits

        seconds = None if time_limit is None else milliseconds(time_limit) / 1000
        limits = Limits(max(1, processes), seconds, None if memory_limit is None else in_bytes(memory_limit))
    elif time_limit is not None or memory_limit is not None or processes != 1:
        raise TypeError("limits are for functions in processes of their own: add isolated=True")

    def made(of: Callable[..., Any]) -> Function:
        return Function(
            of,
            name=name,
            rows=rows,
            arguments=arguments,
            result=result,
            deterministic=deterministic,
            isolated=limits,
        )

    return made if function is None else made(function)
