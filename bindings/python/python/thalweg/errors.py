"""The exceptions of the package: whose fault it is, where it is, and what to do about it."""

from __future__ import annotations

__all__ = ["DataError", "Error", "FunctionError", "SqlError", "SqlWarning", "StateError"]


class Error(Exception):
    """What the engine reports. The text shows the place in the statement; the parts are attributes."""

    def __init__(
        self,
        text: str,
        *,
        message: str | None = None,
        kind: str = "",
        line: int | None = None,
        column: int | None = None,
        help: str | None = None,
        file: str | None = None,
        row: int | None = None,
        operator: str | None = None,
        sql: str = "",
    ) -> None:
        super().__init__(text)
        #: The message alone, without the excerpt.
        self.message: str = text if message is None else message
        #: ``plan``, ``unsupported``, ``data``, ``io``, ``resource``, ``user``, ``cancelled`` or ``internal``.
        self.kind: str = kind
        #: The line in the statement, from 1.
        self.line: int | None = line
        #: The column in that line, from 1.
        self.column: int | None = column
        #: What can be done about it.
        self.help: str | None = help
        #: The file that was read or written.
        self.file: str | None = file
        #: The row, or the line of the file, from 1.
        self.row: int | None = row
        #: The part of the query in which it happened.
        self.operator: str | None = operator
        #: The statements.
        self.sql: str = sql


class SqlError(Error):
    """The statement, or an option in it, is wrong. Nothing has run."""


class DataError(Error):
    """The data do not fit what was declared: a bad row, a division by zero."""


class StateError(Error):
    """A job cannot resume: its snapshot is missing, or is of another query."""


class FunctionError(Error):
    """A function of Python failed. What it raised is the cause (``__cause__``)."""


class SqlWarning(UserWarning):
    """Something about a statement that is no error and worth knowing."""
