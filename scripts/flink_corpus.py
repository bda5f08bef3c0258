"""Collects SQL scripts for flink_answers.py, one JSON object per line on standard output.

    scripts/flink_corpus.py [FOLDER…]

The files and the SQL blocks of pages below the folders (default: this repository).
"""

import json
import pathlib
import re
import sys

BLOCK = re.compile(r"^```sql[^\n]*\n(.*?)^```", re.S | re.M)


def scripts(folder):
    """The names and texts of the scripts below a folder."""
    for path in sorted(folder.rglob("*")):
        if {"target", ".venv", ".git"} & set(path.parts) or path.suffix not in (".sql", ".md"):
            continue
        name, text = str(path.relative_to(folder)), path.read_text()
        if path.suffix == ".sql":
            yield name, text.replace("@DIR@", "/data")
            continue
        for number, block in enumerate(BLOCK.findall(text), 1):
            yield f"{name} block {number}", block


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    for folder in sys.argv[1:] or [root]:
        for name, text in scripts(pathlib.Path(folder)):
            print(json.dumps({"name": name, "sql": text}, ensure_ascii=False))


main()
