"""The plug-in for pytest: files ``*.test.md`` are tests of SQL, each case one test.

pytest finds it where the package is installed. The cases run in this process, as by the command ``thalweg test``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import testing
from .errors import Error

__all__ = ["MarkdownFile", "MarkdownTest", "pytest_collect_file"]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Takes the files that hold tests of SQL."""
    if not file_path.name.endswith(".test.md"):
        return None
    collector: pytest.Collector = MarkdownFile.from_parent(parent, path=file_path)
    return collector


class MarkdownFile(pytest.File):
    """A file of tests of SQL."""

    def collect(self) -> Iterator[pytest.Item]:
        """One test for each case."""
        try:
            file = testing.File(self.path)
        except Error as error:
            raise self.CollectError(str(error)) from error
        for number, (name, line) in enumerate(file.cases):
            yield MarkdownTest.from_parent(self, name=name, file=file, number=number, line=line)


class MarkdownTest(pytest.Item):
    """A case of a file."""

    def __init__(self, *, file: testing.File, number: int, line: int, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._file, self._number, self._line = file, number, line

    def runtest(self) -> None:
        self._file.check(self._number)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, (AssertionError, Error)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self._line - 1, self.name
