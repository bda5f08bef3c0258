"""Records of Python, which are rows of SQL: dataclasses, named tuples, typed dictionaries, tuples."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
# A row by its types: `tw.Row[str, int]`.
from builtins import tuple as Row
from typing import Any, NamedTuple

from .functions import _named, _sql_type_or_none, _unannotated

__all__ = ["Row", "Field", "field_names", "fields_of", "maker", "row_type"]



class Field(NamedTuple):
    """A field of a record: its name, its SQL type, and whether it can be None."""

    name: str
    sql: str
    nullable: bool


def field_names(record: object) -> list[str] | None:
    """The names of the fields of a record; None if it is none, or its fields have no names."""
    bare, _ = _unannotated(record)
    if isinstance(bare, type) and hasattr(bare, "__dataclass_fields__"):
        import dataclasses

        return [field.name for field in dataclasses.fields(bare) if field.init]
    if isinstance(bare, type) and (hasattr(bare, "_fields") or typing.is_typeddict(bare)):
        return list(typing.get_type_hints(bare))
    return None


def fields_of(record: object, owner: str) -> list[Field] | None:
    """The fields of a record with their types; None if it is a single value."""
    bare, extras = _unannotated(record)
    if extras:
        return None
    names = field_names(bare)
    if names is not None:
        hints = typing.get_type_hints(bare, include_extras=True)
        pairs = [(name, hints[name]) for name in names]
    elif typing.get_origin(bare) is tuple:
        pairs = [(f"f{place}", hint) for place, hint in enumerate(typing.get_args(bare))]
    else:
        return None
    fields = []
    for name, hint in pairs:
        found = _sql_type_or_none(hint)
        if found is None:
            raise TypeError(
                f"{owner}: {name} is {_named(hint)}, which has no type in SQL; annotate it with one, such as "
                "Annotated[Decimal, 'DECIMAL(10, 2)']"
            )
        fields.append(Field(name, *found))
    return fields


def row_type(fields: Sequence[Field]) -> str:
    """The SQL type of a record with these fields."""
    columns = ", ".join(f"`{field.name.replace('`', '``')}` {field.sql}" for field in fields)
    return f"ROW<{columns}>"


def maker(record: Any, names: Sequence[str]) -> Callable[..., Any]:
    """What makes a record of the values of its fields, in this order."""
    if typing.is_typeddict(record):
        return lambda *values: dict(zip(names, values))
    if names == field_names(record):
        return typing.cast("Callable[..., Any]", record)
    return lambda *values: record(**dict(zip(names, values)))
