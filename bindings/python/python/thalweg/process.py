"""Keyed process functions: a typed state for each key, and timers of event time and of the clock."""

from __future__ import annotations

import datetime
import heapq
import itertools
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .functions import _named, _sql_type_or_none
from .records import Field, field_names, fields_of, maker

if TYPE_CHECKING:
    from . import _thalweg

__all__ = ["Context", "KeyedProcess"]

Key = TypeVar("Key")
In = TypeVar("In")
Out = TypeVar("Out")

_EPOCH = datetime.datetime(1970, 1, 1)
_MILLISECOND = datetime.timedelta(milliseconds=1)
#: The watermark of an input that has ended.
_END = 2**63 - 1


def _to_ms(at: datetime.datetime | int) -> int:
    if isinstance(at, int):
        return at
    if at.tzinfo is not None:
        at = at.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    # Up to the next millisecond: a timer never fires early.
    return -((_EPOCH - at) // _MILLISECOND)


def _to_datetime(ms: int) -> datetime.datetime | None:
    try:
        return _EPOCH + ms * _MILLISECOND
    except OverflowError:
        return None


class Context(Generic[Out]):
    """What a process function can do besides changing its state."""

    def __init__(self) -> None:
        self._emitted: list[Any] = []
        self._changes: list[tuple[bool, bool, int]] = []
        self._forgets = False
        self._watermark_ms = -_END
        self._now_ms = 0

    def emit(self, row: Out) -> None:
        """Makes a row of the result."""
        self._emitted.append(row)

    def timer(self, at: datetime.datetime | int, *, clock: bool = False) -> None:
        """Sets a timer of this key: a point in event time, or of the clock; numbers are milliseconds since
        1970. The same timer twice is one."""
        self._changes.append((True, clock, _to_ms(at)))

    def delete_timer(self, at: datetime.datetime | int, *, clock: bool = False) -> None:
        """Takes a timer of this key back, if it is set."""
        self._changes.append((False, clock, _to_ms(at)))

    def forget(self) -> None:
        """Drops the state of this key. Its timers stay."""
        self._forgets = True

    @property
    def watermark(self) -> datetime.datetime | None:
        """No row older than this comes any more, unless it is late; None where there is no watermark."""
        return _to_datetime(self._watermark_ms)

    @property
    def now(self) -> datetime.datetime:
        """The clock, in UTC."""
        return _EPOCH + self._now_ms * _MILLISECOND


class KeyedProcess(Generic[Key, In, Out]):
    """A function that keeps a state for each key and sets timers; ``db.register_process`` makes a relation of it.

    ``In`` is a dataclass, a NamedTuple or a TypedDict, whose fields are read as columns; ``Out`` is one, or a
    ``tw.Row``, or a plain type. ``state`` has a hint: a dataclass, a NamedTuple or a plain type, and None for a
    key that has none. States and timers are in snapshots.
    """

    #: The state of the key that is being worked on. Set it to None, or call ``ctx.forget()``, to drop it.
    state: Any = None

    def on_row(self, key: Key, row: In, ctx: Context[Out]) -> None:
        """A row of this key has come."""
        raise NotImplementedError

    def on_timer(self, key: Key, at: datetime.datetime, ctx: Context[Out]) -> None:
        """A timer of event time has fired: no row that is older comes any more."""

    def on_clock(self, key: Key, at: datetime.datetime, ctx: Context[Out]) -> None:
        """A timer of the clock has fired."""


class _Description:
    """What the hints of a process function say."""

    def __init__(self, process: type[KeyedProcess[Any, Any, Any]], key: str) -> None:
        name = process.__name__
        arguments: tuple[Any, ...] = ()
        for base in getattr(process, "__orig_bases__", ()):
            if typing.get_origin(base) is KeyedProcess:
                arguments = typing.get_args(base)
        if len(arguments) != 3:
            raise TypeError(f"{name}: write class {name}(tw.KeyedProcess[Key, In, Out])")
        _, row, out = arguments
        names = field_names(row)
        if names is None:
            raise TypeError(
                f"{name}: In is {_named(row)}; it is a dataclass, a NamedTuple or a TypedDict, whose fields are "
                "read as columns"
            )
        #: The columns that are read, the key first.
        self.columns = [key, *(column for column in names if column != key)]
        self.places = [self.columns.index(column) for column in names]
        self.row = maker(row, names)
        result = fields_of(out, name)
        self.is_value = result is None
        self.result = [_field("value", out, name)] if result is None else result
        hint = typing.get_type_hints(process, include_extras=True).get("state", typing.Any)
        self.state, self.make_state, self.parts = _state(hint, name)


def _field(field: str, hint: Any, owner: str) -> Field:
    found = _sql_type_or_none(hint)
    if found is None:
        raise TypeError(f"{owner}: {field} is {_named(hint)}, which has no type in SQL")
    return Field(field, *found)


def _state(
    hint: Any, owner: str
) -> tuple[list[Field], Callable[..., Any], Callable[[Any], tuple[Any, ...]]]:
    """The columns of a state, what makes one of their values, and what takes it apart."""
    if hint is typing.Any:
        raise TypeError(f"{owner}: the state has no hint; write state: int | None, or that of a dataclass")
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if type(None) in typing.get_args(hint) and len(parts) == 1:
        hint = parts[0]
    names = field_names(hint)
    if names is None:
        return [_field("value", hint, owner)], lambda value: value, lambda state: (state,)
    fields = fields_of(hint, owner)
    assert fields is not None
    if typing.is_typeddict(hint):
        return fields, maker(hint, names), lambda state: tuple(state[name] for name in names)
    return fields, maker(hint, names), lambda state: tuple(getattr(state, name) for name in names)


class _Timers:
    """The timers of one kind."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._set: set[tuple[int, Any]] = set()
        self._number = itertools.count()
        self.firing_ms: int | None = None

    def add(self, at_ms: int, key: Any) -> None:
        if self.firing_ms is not None:
            if self.firing_ms >= _END:
                return
            at_ms = max(at_ms, self.firing_ms + 1)
        if (at_ms, key) not in self._set:
            self._set.add((at_ms, key))
            heapq.heappush(self._heap, (at_ms, next(self._number), key))

    def remove(self, at_ms: int, key: Any) -> None:
        self._set.discard((at_ms, key))

    def first(self) -> int | None:
        while self._heap and (self._heap[0][0], self._heap[0][2]) not in self._set:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self, until_ms: int) -> tuple[int, Any] | None:
        first = self.first()
        if first is None or first > until_ms:
            return None
        at_ms, _, key = heapq.heappop(self._heap)
        self._set.discard((at_ms, key))
        return at_ms, key

    def all(self) -> list[tuple[int, Any]]:
        return [(at_ms, key) for at_ms, _, key in sorted(self._heap, key=lambda t: t[:2]) if (at_ms, key) in self._set]


class _Runner:
    """Runs a process function for the keys of one partition. The engine calls it, one call at a time."""

    def __init__(self, process: type[KeyedProcess[Any, Any, Any]], description: _Description) -> None:
        self._process = process()
        self._of = description
        self._states: dict[Any, Any] = {}
        self._timers, self._clock_timers = _Timers(), _Timers()
        self._context: Context[Any] = Context()

    def rows(self, columns: list[list[Any]], before: int | list[int], now_ms: int) -> list[Any]:
        context, places, make = self._context, self._of.places, self._of.row
        context._now_ms = now_ms
        on_row = self._process.on_row
        for number, key in enumerate(columns[0]):
            watermark = before if isinstance(before, int) else before[number]
            self._fire(watermark)
            context._watermark_ms = watermark
            row = make(*[columns[place][number] for place in places])
            self._call(key, lambda: on_row(key, row, context))
        return self._taken()

    def watermark(self, watermark_ms: int, now_ms: int) -> list[Any]:
        self._context._now_ms = now_ms
        self._fire(watermark_ms)
        if watermark_ms >= _END:
            self._clock_timers = _Timers()
        return self._taken()

    def tick(self, now_ms: int) -> list[Any]:
        self._context._now_ms = now_ms
        while (timer := self._clock_timers.pop(now_ms)) is not None:
            at_ms, key = timer
            at = _EPOCH + at_ms * _MILLISECOND
            self._clock_timers.firing_ms = at_ms
            self._call(key, lambda: self._process.on_clock(key, at, self._context))
            self._clock_timers.firing_ms = None
        return self._taken()

    def _fire(self, watermark_ms: int) -> None:
        """A timer fires from the millisecond before it on."""
        is_end = watermark_ms >= _END
        until_ms = _END if is_end else watermark_ms + 1
        while (timer := self._timers.pop(until_ms)) is not None:
            at_ms, key = timer
            at = _to_datetime(at_ms) or datetime.datetime.max
            self._context._watermark_ms = at_ms - 1
            self._timers.firing_ms = _END if is_end else at_ms
            self._call(key, lambda: self._process.on_timer(key, at, self._context))
            self._timers.firing_ms = None

    def _call(self, key: Any, call: Callable[[], None]) -> None:
        process, context, states = self._process, self._context, self._states
        process.state = states.get(key)
        call()
        if context._changes:
            for is_set, by_clock, at_ms in context._changes:
                timers = self._clock_timers if by_clock else self._timers
                if is_set:
                    timers.add(at_ms, key)
                else:
                    timers.remove(at_ms, key)
            context._changes.clear()
        if context._forgets or process.state is None:
            context._forgets = False
            states.pop(key, None)
        else:
            states[key] = process.state

    def _taken(self) -> list[Any]:
        emitted, self._context._emitted = self._context._emitted, []
        return [(value,) for value in emitted] if self._of.is_value else emitted

    def summary(self) -> tuple[int | None, int | None, int]:
        """When the next timers of event time and of the clock are due, and how many keys there are."""
        return self._timers.first(), self._clock_timers.first(), len(self._states)

    def states(self) -> list[list[Any]]:
        """The keys that have a state, then the columns of their states."""
        rows = [(key, *self._of.parts(state)) for key, state in self._states.items()]
        return [list(column) for column in zip(*rows)] or [[] for _ in range(1 + len(self._of.state))]

    def timers(self) -> tuple[list[Any], list[int], list[bool]]:
        """The keys, times and kinds of all timers."""
        both = [(self._timers, False), (self._clock_timers, True)]
        found = [(key, at_ms, by_clock) for timers, by_clock in both for at_ms, key in timers.all()]
        return [f[0] for f in found], [f[1] for f in found], [f[2] for f in found]

    def restore_states(self, columns: list[list[Any]]) -> None:
        for key, *parts in zip(*columns):
            self._states[key] = self._of.make_state(*parts)

    def restore_timers(self, columns: list[list[Any]]) -> None:
        for key, at_ms, by_clock in zip(*columns):
            (self._clock_timers if by_clock else self._timers).add(at_ms, key)


def register(
    connection: _thalweg.Connection,
    name: str,
    process: type[KeyedProcess[Any, Any, Any]],
    relation: str,
    key: str,
) -> None:
    """Checks the hints of a process function and makes the relation known."""
    of = _Description(process, key)
    connection.register_process(
        name,
        relation,
        of.columns,
        of.result,
        of.state,
        lambda: _Runner(process, of),
    )
