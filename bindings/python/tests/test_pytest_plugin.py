"""The plug-in for pytest."""

from __future__ import annotations

import subprocess
import sys
import textwrap



def pytest_in(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_files_of_tests_are_collected_and_skipped_where_the_command_has_none(tmp_path):
    (tmp_path / "totals.test.md").write_text("# Totals\n")
    (tmp_path / "other.md").write_text("# No test\n")
    ended = pytest_in(tmp_path)
    if "no command `test`" in ended.stdout:
        assert "1 skipped" in ended.stdout and ended.returncode == 0
    else:
        assert "totals" in ended.stdout and "other" not in ended.stdout


def test_the_command_decides(tmp_path):
    """With a command in the place of thalweg's, which fails for one file and passes for the other."""
    for name in ("good", "bad"):
        (tmp_path / f"{name}.test.md").write_text("")
    (tmp_path / "conftest.py").write_text(
        textwrap.dedent(
            """
            import sys
            from thalweg import pytest_plugin

            program = "import sys; print('row 1 differs'); sys.exit('bad' in sys.argv[-1])"
            pytest_plugin._command = lambda *arguments: [sys.executable, "-c", program, *arguments]
            """
        )
    )
    ended = pytest_in(tmp_path)
    assert "1 failed, 1 passed" in ended.stdout and "row 1 differs" in ended.stdout, ended.stdout
