"""Texts of statements: where the last one begins, and whether it is a query."""

from __future__ import annotations

import re

__all__ = ["split_query"]

#: Texts, names in backticks and comments, in which a semicolon ends nothing.
_PIECES = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|;", re.DOTALL)
_COMMENTS = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_QUERY = re.compile(r"\(|(?:SELECT|WITH|VALUES)\b", re.IGNORECASE)


def split_query(text: str) -> tuple[str, str | None]:
    """The statements in front of the query that stands last, and the query; None where the last is none."""
    begin = 0
    for piece in _PIECES.finditer(text):
        if piece[0] == ";" and _word(text[piece.end() :]):
            begin = piece.end()
    before, last = text[:begin], text[begin:]
    if _QUERY.match(_word(last)):
        return before, last
    return text, None


def _word(text: str) -> str:
    """The text behind the comments that it begins with."""
    found = _COMMENTS.match(text)
    return text[found.end() :] if found else text
