"""Texts of functions with their own names numbered: equal if they differ in names alone."""

import re
from collections.abc import Container


def number_names(text: str, names: Container[str], token: re.Pattern[str]) -> str:
    """Return a text without comments and empty lines, its own names numbered by their first use.

    Args:
        token: Matches a comment as its group `dropped`, and any name as its group `word`.
    """
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        if found["dropped"]:
            return ""
        word = found["word"]
        return numbers.setdefault(word, f"${len(numbers)}") if word in names else found[0]

    lines = (line.rstrip() for line in token.sub(number, text).splitlines())
    return "\n".join(filter(None, lines))
