"""The plug-in for pytest: files ``*.test.md`` are tests, which the command ``thalweg test FILE`` runs.

pytest finds it where the package is installed. Where the command has no ``test`` the files are skipped, with a
line that says so.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
        """One test: the command says which of the file's failed."""
        yield MarkdownTest.from_parent(self, name=self.path.name.removesuffix(".test.md"))


class MarkdownTest(pytest.Item):
    """What the command says of a file."""

    def runtest(self) -> None:
        if not _knows_tests():
            pytest.skip("this thalweg has no command `test`")
        ended = subprocess.run(_command(str(self.path)), capture_output=True, text=True, cwd=self.path.parent)
        if ended.returncode != 0:
            raise _Failed(ended.stdout + ended.stderr)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, _Failed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"thalweg test {self.path.name}"


class _Failed(Exception):
    """The command has failed; its output is the text."""


_known: list[bool] = []


def _knows_tests() -> bool:
    """Asked once: a command without `test` does not know what help to give."""
    if not _known:
        _known.append(subprocess.run(_command("--help"), capture_output=True).returncode == 0)
    return _known[0]


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "thalweg", "test", *arguments]
