"""Markdown in which foreign text stays text: it closes no fence, notifies no user, links nothing.

GitHub reads `@name`, `#12` and HTML in plain text, and not in code: foreign text stands in code
only, between more backticks than it has itself.
"""

import re
from collections.abc import Iterable, Sequence

from ctk.toolkit.case.formats.plain_text import many_lines, one_line

LOG_LINES = 80
"""Lines of a log; the middle of a longer one is left out, its lines with `error` kept."""

LOG_LENGTH = 12_000
_WARNINGS = re.compile(r"^.*: (?:warning|note): .*\n(?:[ \d]+\|.*\n)*", re.MULTILINE)
"""Remarks of a C++ compiler, which may bury its error."""

_ENDS = LOG_LINES * 3 // 8


def fence(text: str, language: str = "text") -> str:
    """Return a text as a fenced block."""
    text = many_lines(text).strip("\n")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{language}\n{text}\n{marks}"


def code(text: str) -> str:
    """Return a text as a code span on one line."""
    text = one_line(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * (longest + 1) if longest else "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{pad}{text or ' '}{pad}{marks}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; each cell that is not empty is code."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for row in rows:
        cells = [code(cell).replace("|", "\\|") if cell else "" for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def details(summary: str, content: str) -> str:
    """Return a part that is closed at first; the summary is text of ctk."""
    return f"<details>\n<summary>{summary}</summary>\n\n{content}\n\n</details>"


def cut_log(text: str) -> str:
    """Return a log with its beginning, its end, and the lines with `error` between them."""
    text = _WARNINGS.sub("", text)
    lines = [line[:500] for line in text.splitlines()]
    if len(lines) > LOG_LINES:
        middle = lines[_ENDS:-_ENDS]
        errors = [line for line in middle if "error" in line.lower()][: LOG_LINES - 2 * _ENDS]
        note = f"[... {len(middle) - len(errors)} lines left out ...]"
        lines = [*lines[:_ENDS], *errors, note, *lines[-_ENDS:]]
    text = "\n".join(lines)
    half = LOG_LENGTH // 2
    return text if len(text) <= LOG_LENGTH else f"{text[:half]}\n[...]\n{text[-half:]}"
