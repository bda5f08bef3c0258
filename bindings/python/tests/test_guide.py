"""Each example of docs/python.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_guide_runs(number, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    line = GUIDE.read_text()[: GUIDE.read_text().index(EXAMPLES[number])].count("\n")
    # Lines of the page, for tracebacks.
    code = compile("\n" * line + EXAMPLES[number], str(GUIDE), "exec")
    exec(code, {"__name__": "example"})
