"""Count turns of phrase that STYLE rules out, in docstrings, comments and messages, per room.

A text is one docstring, one block of comment lines, or one string of at least four words that a
person reads (an error, a log line, a help text). A text counts once, whatever number of turns it
holds. `python -m tests.repo.prose [PATH ...]` prints every turn with its place; `--table` prints
the share of each room.

Source: CONTRIBUTING.md, "Prose". The list follows a count over xDSL and Hypothesis, where 0.25 % of
all docstrings and comments hold one of these turns.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.helpers.project import PACKAGES, ROOT, name_of, python_files, tree_of
from tests.repo.rooms import room_of

BANNED = re.compile(
    r"""
    \b(?:whoever|whomever|nobody|somebody|anybody)(?!'s_)\b
    | \bwhat(?:ever)?\b(?!\s+to\b)(?![^.!]*\?)          # a question may ask "what"
    | \b(?:told|tells|says|said)\b
    | \b(?:ones?|those)\ that\b
    | \bof\ ours\b | \banew\b
    | \blets?\ go\ of\b | \b(?:goes|go|gone|went)\ on\ with\b
    | (?<!there\ )\bis\ no\ (?!longer\b|more\b|less\b|larger\b|smaller\b|such\b)[a-z]+
    | ,\ too\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
QUOTED = re.compile(r"`[^`]*`")
KINDS = ("docstring", "comment", "message")


@dataclass(frozen=True, slots=True)
class Text:
    """A docstring, comment or message, with its place."""

    path: Path
    line: int
    kind: str
    text: str

    @property
    def turns(self) -> list[str]:
        """Return the banned turns of the text; code in backticks does not count."""
        flat = " ".join(QUOTED.sub("``", self.text).split())
        return [match.group() for match in BANNED.finditer(flat)]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a file, those of attributes and constants included."""
    for node in ast.walk(tree_of(path)):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the blocks of comment lines of a file."""
    source = path.read_text(encoding="utf-8")
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if block and line != block[-1][0] + 1:
            yield block[0][0], " ".join(text for _, text in block)
            block = []
        block.append((line, token.string.lstrip("#: ")))
    if block:
        yield block[0][0], " ".join(text for _, text in block)


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of a file that read as text: four words or more, and no docstring."""
    own = {line for line, _ in docstrings(path)}
    inner: set[int] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
            inner |= {id(part) for part in node.values}
            text = " … ".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value if id(node) not in inner and node.lineno not in own else ""
        else:
            continue
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= 4 and " " in text:
            yield node.lineno, text


def texts(*folders: str) -> Iterator[Text]:
    """Yield every text of the Python files below some folders or files."""
    for path in python_files(*folders):
        for kind, find in zip(KINDS, (docstrings, comments, messages), strict=True):
            yield from (Text(path, line, kind, text) for line, text in find(path))


@cache
def shares() -> dict[str, Counter[str]]:
    """Return for each room how many texts it has, and how many of each kind hold a turn."""
    counts: dict[str, Counter[str]] = {}
    for text in texts(*PACKAGES, "ctk"):
        room = room_of(text.path)
        count = counts.setdefault(room.path if room else "?", Counter())
        count[f"all {text.kind}"] += 1
        count[text.kind] += bool(text.turns)
    return counts


def table() -> Iterator[str]:
    """Yield one line per room: its share of docstrings and comments, and of messages."""
    total: Counter[str] = Counter()
    for room, count in sorted(shares().items()):
        total += count
        yield row(room, count)
    yield row("total", total)


def row(name: str, count: Counter[str]) -> str:
    """Return a line of the table."""
    held = count["docstring"] + count["comment"]
    of = count["all docstring"] + count["all comment"]
    messages = f"{count['message']:5} of {count['all message']:5} messages"
    return f"{name:28}{held:5} of {of:5} texts {held / max(of, 1):7.1%}   {messages}"


def main() -> None:
    """Print the turns below some paths, or the table."""
    if sys.argv[1:] in ([], ["--table"]):
        print("\n".join(table()))
        return
    paths = [Path(name).resolve().relative_to(ROOT).as_posix() for name in sys.argv[1:]]
    for text in texts(*paths):
        if text.turns:
            print(f"{name_of(text.path)}:{text.line}: {text.kind}: {', '.join(text.turns)}")


if __name__ == "__main__":
    main()
