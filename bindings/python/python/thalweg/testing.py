"""Tests of SQL: what comes in and when, and what has to come out, on the engine's virtual clock.

    import thalweg as tw

    with tw.testing.case(open("totals.sql").read(), at="2026-01-01 09:00") as t:
        orders = t.input("orders", "ts | item | amount")
        orders.push("2026-01-01 09:00:05 | tea | 2")
        t.advance("1 min")
        orders.watermark("2026-01-01 10:00")
        t.expect("totals", [("tea", 2)], columns="item | total")

``t.snapshot()``, ``t.crash()`` and ``t.restore()`` show what becomes of a job that is killed and resumes.

The statements are those of production: a test stands in the place of every connector, and nothing outside is
touched. A case runs in the contracts ``epoch`` and ``arrival``, with 1 and with 4 workers, on one thread; where
something else comes out, an ``AssertionError`` shows both. :func:`check_file` does the same for a file
``*.test.md``, as the command ``thalweg test`` does, which says what such files hold.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _thalweg
from .literals import literals
from .quantities import milliseconds

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["Case", "File", "Input", "Report", "case", "check_file"]

#: A row: cells as a text with ``|`` between them, values in the order of the columns, or by name.
_Row = str | Sequence[object] | Mapping[str, object]
#: First cells of lines that are no rows.
_OWN = ("end", "job snapshot", "job crash", "job restore")


@dataclasses.dataclass(frozen=True)
class Report:
    """How a case went that has passed."""

    #: What it is called.
    name: str
    #: The ways in which it ran.
    variants: int
    #: The contracts in which it cannot run, and why.
    left_out: dict[str, str]


class File:
    """A file of tests, or its text."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.fspath(path))
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        self._tests = _thalweg.SqlTests(os.fspath(path), os.path.dirname(self.path), text, None)

    @property
    def cases(self) -> list[tuple[str, int]]:
        """The name of each case, and the line on which it begins."""
        return self._tests.cases

    def check(
        self,
        number: int,
        *,
        db: Connection | None = None,
        params: Mapping[str, object] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Report:
        """Runs a case by its place, from 0; raises an ``AssertionError`` where rows differ."""
        __tracebackhide__ = True
        return _check(self._tests, number, os.path.relpath(self.path), db, params, settings)


def check_file(
    path: str | os.PathLike[str],
    *,
    db: Connection | None = None,
    params: Mapping[str, object] | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[Report]:
    """Runs all cases of a file, and raises an ``AssertionError`` that shows each one in which rows differ.

    Statements may call the functions that are registered in ``db`` and write into its sinks, in whose place the
    test stands. Values of ``params`` stand where ``${name}`` does, as literals.
    """
    __tracebackhide__ = True
    file = File(path)
    reports, failures = [], []
    for number in range(len(file.cases)):
        try:
            reports.append(file.check(number, db=db, params=params, settings=settings))
        except AssertionError as failure:
            failures.append(str(failure))
    if failures:
        raise AssertionError("\n\n".join(failures))
    return reports


def case(
    sql: str,
    /,
    *,
    at: str | datetime.datetime = "2026-01-01 00:00:00",
    order: str | Iterable[str] | None = None,
    db: Connection | None = None,
    params: Mapping[str, object] | None = None,
    settings: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Case:
    """Begins a case over these statements. As a context manager it is checked at the end of the block.

    ``at`` is when the clock starts. ``order`` says in which contracts it runs; by default in ``epoch`` and
    ``arrival``, or in the one that the statements set. Names of files start from ``folder``, by default the
    current one. The other arguments are those of :func:`check_file`.
    """
    return Case(sql, at=at, order=order, db=db, params=params, settings=settings, folder=folder)


class Case:
    """Statements, what comes in, and what has to come out; :func:`case` makes it."""

    def __init__(
        self,
        sql: str,
        *,
        at: str | datetime.datetime,
        order: str | Iterable[str] | None,
        db: Connection | None,
        params: Mapping[str, object] | None,
        settings: Mapping[str, str] | None,
        folder: str | os.PathLike[str] | None,
    ) -> None:
        self._sql = sql
        self._start = self._now = _moment(at)
        self._order = [order] if isinstance(order, str) else list(order or ())
        self._db, self._params, self._settings = db, params, settings
        self._folder = os.path.abspath(os.fspath(folder) if folder is not None else os.getcwd())
        self._inputs: list[Input] = []
        #: What happens to the job, and when.
        self._actions: list[tuple[datetime.datetime, str]] = []
        self._expectations: list[str] = []

    @property
    def now(self) -> datetime.datetime:
        """The time of the clock."""
        return self._now

    def input(self, table: str, columns: str | Sequence[str], rows: Iterable[_Row] = ()) -> Input:
        """What comes in of a table. ``rows`` are there from the beginning; others are pushed later.

        Columns that are left out are NULL.
        """
        added = Input(self, table, _columns(columns))
        added._add_first(rows)
        self._inputs.append(added)
        return added

    def advance(self, by: str | float | datetime.timedelta) -> None:
        """Time passes: ``"30 s"``, seconds, or a ``timedelta``."""
        self._now += datetime.timedelta(milliseconds=milliseconds(by))

    def snapshot(self) -> None:
        """The job takes a snapshot of what it is now, as jobs with snapshots do from time to time.

        So that what comes in next is behind it, the clock moves on by a millisecond; by
        :meth:`crash` and :meth:`restore` as well.
        """
        self._act("job snapshot")

    def crash(self) -> None:
        """The job is killed, in the middle of what it is doing. What its sinks were given behind the last
        snapshot is not there: sinks are transactional in a test.

        Time passes and rows come in until :meth:`restore`; the job reads them then.
        """
        self._act("job crash")

    def restore(self) -> None:
        """The job resumes from the last snapshot, or starts from scratch if there is none."""
        self._act("job restore")

    def _act(self, action: str) -> None:
        self._actions.append((self._now, action))
        self._now += datetime.timedelta(milliseconds=1)

    def expect(self, table: str, rows: str | Iterable[_Row], columns: str | Sequence[str] | None = None) -> None:
        """What is in a table in the end, in any order. The rows of a bare SELECT are the table ``result``.

        Only the columns that are named are compared. ``rows`` are tuples, dictionaries whose keys are columns, or
        a text with a line for each row, whose first line names the columns unless ``columns`` does. The columns
        ``at`` and ``op`` are when a row came out, and as which kind of change.
        """
        self._expect(table, rows, columns)

    def expect_changes(
        self, table: str, rows: str | Iterable[_Row], columns: str | Sequence[str] | None = None
    ) -> None:
        """Each change of a table, in its sequence where that is promised."""
        self._expect(f"changes of {table}", rows, columns)

    def expect_late(self, rows: str | Iterable[_Row], columns: str | Sequence[str] | None = None) -> None:
        """The rows that came too late; ``stage`` and ``watermark`` are columns as well."""
        self._expect("late", rows, columns)

    def expect_error(self, text: str) -> None:
        """The statements fail, with a message that holds this."""
        self._expectations.append(f"expect error\n\n~~~\n{text}\n~~~\n")

    def check(self) -> Report:
        """Runs the case. Raises an ``AssertionError`` where rows differ, and what the statements fail with."""
        __tracebackhide__ = True
        if not self._expectations:
            raise TypeError("the case expects nothing: call expect, expect_changes, expect_late or expect_error")
        tests = _thalweg.SqlTests("the test", self._folder, self.text(), self._sql)
        return _check(tests, 0, "", self._db, self._params, self._settings)

    def text(self) -> str:
        """The case as the text of a test file, without its statements."""
        parts = [f"order {', '.join(self._order)}\n"] if self._order else []
        if self._actions and not self._inputs:
            raise TypeError("a job without an input has nothing to resume: call input first")
        for added in self._inputs:
            end = self._now if added is self._inputs[0] else None
            # Lines of a moment come in by the sequence of the inputs, so that all are in front of an action.
            actions = self._actions if added is self._inputs[-1] else []
            parts.append(added._text(self._start, end, actions))
        return "\n".join(parts + self._expectations)

    def _expect(self, what: str, rows: str | Iterable[_Row], columns: str | Sequence[str] | None) -> None:
        header, lines = _table(rows, columns)
        self._expectations.append(f"expect {what}\n\n{_written(header, lines)}")

    def __enter__(self) -> Case:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        __tracebackhide__ = True
        if kind is None:
            self.check()


class Input:
    """What comes in of a table, by the clock of its case."""

    def __init__(self, of: Case, table: str, columns: list[str]) -> None:
        self._case, self._table, self._columns = of, table, columns
        self._first: list[list[str]] = []
        #: The time, the split, the kind of change, and the cells of each line.
        self._lines: list[tuple[datetime.datetime, str, str, list[str]]] = []

    def push(self, *rows: _Row, split: str = "", op: str = "") -> None:
        """Rows come in now, of a partition and as a kind of change (``+I``, ``-U``, ``+U``, ``-D``)."""
        for row in rows:
            cells = _cells(row, self._columns)
            if not isinstance(row, str) and _is_none(cells):
                raise ValueError(f"a test cannot tell {row!r} from its own {cells[0]!r}: give one more value")
            self._line(cells, split, op)

    def watermark(self, at: str | datetime.datetime, *, split: str = "") -> None:
        """No older row of the partition comes."""
        self._line(self._alone(f"watermark {_shown(_moment(at))}"), split, "")

    def end(self) -> None:
        """The input ends. Files end by themselves behind their last row."""
        self._line(self._alone("end"), "", "")

    def _line(self, cells: list[str], split: str, op: str) -> None:
        self._lines.append((self._case.now, _cell(split) if split else "", op, cells))

    def _alone(self, text: str) -> list[str]:
        return [text] + [""] * (len(self._columns) - 1)

    def _add_first(self, rows: Iterable[_Row]) -> None:
        self._first += [_cells(row, self._columns) for row in rows]

    def _text(
        self,
        start: datetime.datetime,
        end: datetime.datetime | None,
        actions: Sequence[tuple[datetime.datetime, str]],
    ) -> str:
        """As a table of a test file. The first input holds the clock's start and end, as lines in which
        nothing but time passes."""
        lines = [*self._lines, *((at, "", "", self._alone(action)) for at, action in actions)]
        lines.sort(key=lambda line: line[0])
        nothing = self._alone("")
        if end is not None:
            if not lines or lines[0][0] > start:
                lines.insert(0, (start, "", "", nothing))
            if lines[-1][0] < end:
                lines.append((end, "", "", nothing))
        own = [name for name, place in (("@split", 1), ("@op", 2)) if any(line[place] for line in lines)]
        has_times = bool(lines)
        header = [*(["@at"] if has_times else []), *own, *self._columns]
        table = []
        for cells in self._first:
            table.append([*([""] if has_times else []), *[""] * len(own), *cells])
        for at, split, op, cells in lines:
            marks = [mark for name, mark in (("@split", split), ("@op", op)) if name in own]
            table.append([_shown(at), *marks, *cells])
        return f"input {self._table}\n\n{_written(header, table)}"


def _check(
    tests: _thalweg.SqlTests,
    number: int,
    file: str,
    db: Connection | None,
    params: Mapping[str, object] | None,
    settings: Mapping[str, str] | None,
) -> Report:
    __tracebackhide__ = True
    values = literals(params) or {}
    pairs = [(key, str(value)) for key, value in (settings or {}).items()]
    variants, left_out, differences = tests.run(number, values, pairs, None if db is None else db._inner)
    name, _ = tests.cases[number]
    if differences:
        shown = []
        for line, what, variant, diff in differences:
            place = f"{file}:{line}: " if file else ""
            shown.append(f"{place}{what} ({variant}): - expected, + found\n\n{diff}")
        raise AssertionError("\n".join(shown).rstrip("\n"))
    return Report(name, variants, dict(left_out))


def _is_none(cells: list[str]) -> bool:
    """True for lines of an input that are no rows."""
    is_own = cells[0] in _OWN or cells[0].startswith("watermark ")
    return is_own and all(cell in ("", "NULL") for cell in cells[1:])


def _moment(given: str | datetime.datetime) -> datetime.datetime:
    moment = given if isinstance(given, datetime.datetime) else datetime.datetime.fromisoformat(given)
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return moment


def _shown(moment: datetime.datetime) -> str:
    return moment.isoformat(sep=" ", timespec="milliseconds")


def _columns(given: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in given.strip().strip("|").split("|")] if isinstance(given, str) else list(given)


def _table(rows: str | Iterable[_Row], columns: str | Sequence[str] | None) -> tuple[list[str], list[list[str]]]:
    """Names and rows of an expected table."""
    if isinstance(rows, str):
        texts = [line for line in rows.splitlines() if line.strip() and not _is_ruler(line)]
        if columns is None:
            if not texts:
                raise TypeError("the first line names the columns")
            columns = texts.pop(0)
        given: list[_Row] = list(texts)
    else:
        given = list(rows)
        if columns is None:
            if not given or not isinstance(given[0], Mapping):
                raise TypeError("say which columns the rows have: columns=\"item | total\"")
            columns = [str(name) for name in given[0]]
    header = _columns(columns)
    return header, [_cells(row, header) for row in given]


def _is_ruler(line: str) -> bool:
    return "---" in line and not set(line) - set("|-: \t")


def _cells(row: _Row, columns: list[str]) -> list[str]:
    """The cells of a row as they are written."""
    if isinstance(row, str):
        cells = _split(row)
    elif isinstance(row, Mapping):
        unknown = [name for name in row if name not in columns]
        if unknown:
            raise TypeError(f"there is no column {unknown[0]!r}, but {', '.join(columns)}")
        cells = [_cell(row.get(name)) for name in columns]
    else:
        cells = [_cell(value) for value in row]
    if len(cells) != len(columns):
        raise TypeError(f"a row has {len(cells)} values, and there are {len(columns)} columns: {row!r}")
    return cells


def _split(line: str) -> list[str]:
    """Cells of a text, in which ``\\|`` is no end of a cell."""
    line = line.strip()
    line = line[1:] if line.startswith("|") else line
    cells, is_escaped = [""], False
    for character in line:
        if character == "|" and not is_escaped:
            cells.append("")
        else:
            cells[-1] += character
        is_escaped = character == "\\" and not is_escaped
    if len(cells) > 1 and not cells[-1].strip() and line.endswith("|"):
        cells.pop()
    return [cell.strip() for cell in cells]


def _cell(value: object) -> str:
    """A value as it stands in a cell."""
    if value is None:
        return "NULL"
    text = _text_of(value)
    if not text or text == "NULL" or text.strip() != text or text.startswith("'"):
        text = "'" + text.replace("'", "''") + "'"
    for character, escape in (("\\", "\\\\"), ("|", "\\|"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(character, escape)
    return text


def _text_of(value: object) -> str:
    """A value as SQL casts it from text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, (bytes, bytearray)):
        return f"x'{bytes(value).hex()}'"
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            raise TypeError(f"{value!r}: write instants as texts, in the time zone of the statements")
        return value.isoformat(sep=" ")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple, Mapping)):
        import json

        return json.dumps(value, default=_text_of, ensure_ascii=False)
    raise TypeError(f"a value of {type(value).__name__} has no cell in a test: write it as a text")


def _written(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
