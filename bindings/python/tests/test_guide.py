"""Each example of docs/python.md, and of the recipe for programs in Python, runs."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = [DOCS / "python.md", DOCS / "how-to" / "embed-in-python.md"]
EXAMPLES = [
    (page, found)
    for page in PAGES
    for found in re.finditer(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_guide_runs(number, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    page, example = EXAMPLES[number]
    # Lines of the page, for tracebacks.
    code = compile("\n" * page.read_text()[: example.start(1)].count("\n") + example[1], str(page), "exec")
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    exec(code, module.__dict__)
