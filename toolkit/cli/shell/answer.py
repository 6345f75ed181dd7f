"""The answer of a command: exit code, first line, data for `--json`, and further lines for people.

Does not know any command. Rich prints plain, unwrapped text when stdout is not a terminal, so that
logs can be searched and commands in them pasted.
"""

import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TextIO, cast

from rich.console import Console, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ctk.toolkit.case.formats.plain_text import many_lines, one_line


class ExitCode(IntEnum):
    """The exit codes of every command and emitted `repro.py`; `git bisect run` understands them."""

    NO_FAILURE = 0
    FAILURE = 1
    USAGE = 2
    CANNOT_TELL = 125


STYLES: Mapping[int, str] = {
    ExitCode.NO_FAILURE: "bold green",
    ExitCode.FAILURE: "bold red",
    ExitCode.USAGE: "bold red",
    ExitCode.CANNOT_TELL: "bold yellow",
}

LOG_WIDTH = 100_000
"""Columns when stdout is not a terminal: nothing is wrapped or cut."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One command's answer.

    Attributes:
        exit_code: An `ExitCode`, or the exit code of a watched script.
        headline: The answer itself, in one line; the first line of stdout.
        data: JSON values; `--json` prints them instead of everything else.
        body: Text after the headline, for people.
    """

    exit_code: int
    headline: str
    data: Mapping[str, object] = field(default_factory=dict[str, object])
    body: tuple[RenderableType, ...] = ()


def as_json_text(command: str, answer: Answer) -> str:
    """Return an answer as JSON: `command`, `exit_code`, `answer`, then the command's own keys."""
    head = {"command": command, "exit_code": int(answer.exit_code), "answer": answer.headline}
    return json.dumps(_finite(head | dict(answer.data)), indent=2, default=str) + "\n"


def _finite(value: object) -> object:
    """Return JSON values with `nan` and `inf` as strings: JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in cast("Mapping[str, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in cast("Sequence[object]", value)]
    return value


def as_text(answer: Answer, stream: TextIO) -> str:
    """Return an answer as text: coloured and wrapped if `stream` is a terminal, plain otherwise."""
    console = console_for(stream)
    with console.capture() as capture:
        headline = Text(
            one_line(answer.headline), style=STYLES.get(answer.exit_code, "bold yellow")
        )
        console.print(headline, soft_wrap=True)
        for part in map(_plain, answer.body):
            shown = part.code if isinstance(part, Syntax) and not console.is_terminal else part
            console.print(shown, soft_wrap=isinstance(shown, str | Text), markup=False)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _plain(part: RenderableType) -> RenderableType:
    """Return a part of a body in which a stranger's text moves no cursor (cells: `Rows`)."""
    if isinstance(part, Syntax):
        part.code = many_lines(part.code)
    return many_lines(part) if isinstance(part, str) else part


def console_for(stream: TextIO) -> Console:
    """Return a console that looks like `stream` and writes to memory.

    It is as wide as the terminal, and never wraps without one. `NO_COLOR` removes every style,
    `FORCE_COLOR` adds styles to a log, `TERM=dumb` has none.
    """
    is_terminal = stream.isatty()
    is_forced = bool(os.environ.get("FORCE_COLOR"))
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    has_styles = (is_terminal or is_forced) and not is_plain
    return Console(
        file=io.StringIO(),
        highlight=False,
        markup=False,
        emoji=False,
        width=None if is_terminal else LOG_WIDTH,
        color_system=("auto" if is_terminal else "standard") if has_styles else None,
        force_terminal=has_styles,
    )


class Rows(Table):
    """A table whose cells are text: each in one printable line, without markup.

    Attributes:
        is_whole: Wrap cells on narrow terminals; else the widest ones end with an ellipsis.
    """

    is_whole: bool = False

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row; see `rich.table.Table.add_row`."""
        plain = (self._cell(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*plain, **options)

    def _cell(self, text: str) -> Text:
        line = one_line(text)
        return Text(line) if self.is_whole else Text(line, no_wrap=True, overflow="ellipsis")


def table(*columns: str, rows: Iterable[Sequence[object]] = (), is_whole: bool = False) -> Table:
    """Return a table without rules.

    Args:
        is_whole: Show each cell whole on a narrow terminal, for decisions that need all of it; else
            the widest columns are cut with an ellipsis, and `--json` has the whole.
    """
    result = Rows(box=None, pad_edge=False, header_style="bold")
    result.is_whole = is_whole
    for column in columns:
        header = Text(column, no_wrap=True, overflow="ellipsis")
        result.add_column(header, overflow="fold")
    for cells in rows:
        result.add_row(*map(str, cells))
    return result


def highlight_code(code: str, language: str) -> Syntax:
    """Return code for a terminal, wrapped; in a log it is printed as it is."""
    return Syntax(code, language, word_wrap=True, background_color="default")
