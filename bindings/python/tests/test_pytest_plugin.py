"""The plug-in for pytest."""

from __future__ import annotations

import subprocess
import sys
import textwrap

TOTALS = """\
    # Totals

    ```sql
    CREATE TABLE orders (item STRING, amount INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'orders.csv');
    SELECT item, SUM(amount) AS total FROM orders GROUP BY item;
    ```

    input orders

    | item | amount |
    |------|--------|
    | tea  | 2      |
    | tea  | 3      |

    ## Amounts are added

    expect result

    | item | total |
    |------|-------|
    | tea  | 5     |

    ## Amounts are not added

    expect result

    | item | total |
    |------|-------|
    | tea  | 4     |
    """


def pytest_in(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_each_case_of_a_file_is_a_test_and_a_failure_shows_both_sides(tmp_path):
    (tmp_path / "totals.test.md").write_text(textwrap.dedent(TOTALS))
    (tmp_path / "other.md").write_text("# No test\n")
    ended = pytest_in(tmp_path)
    assert "1 failed, 1 passed" in ended.stdout and ended.returncode == 1, ended.stdout
    assert "totals.test.md::Amounts are not added" in ended.stdout, ended.stdout
    assert "- | tea  | 4     |\n+ | tea  | 5     |" in ended.stdout, ended.stdout


def test_a_file_that_is_no_test_is_an_error_that_names_its_line(tmp_path):
    (tmp_path / "wrong.test.md").write_text("# Wrong\n\nexpect\n")
    ended = pytest_in(tmp_path)
    assert "1 error" in ended.stdout and "write `expect TABLE`" in ended.stdout, ended.stdout
    assert "wrong.test.md:3" in ended.stdout, ended.stdout
