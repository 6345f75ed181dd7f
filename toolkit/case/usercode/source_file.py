"""A Python file of the user: its statements, its imports, and the text of its kept statements.

    import helper as h                  h: the neighbour helper.py, as a module
    from pack.sub import a              a: taken from the neighbour pack/sub.py
    import torch                        torch: of the package torch, not a neighbour

It runs nothing.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ctk.compiler.usercode.references import files_of_import
from ctk.toolkit.case.usercode.statements import DEFINITIONS, IMPORTS, Statement, statements_of

NOTE = "# ctk:"
"""Start of a line that ctk itself added to a copy; such lines are kept."""

_ENCODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+", re.ASCII)
"""The comment of the first two lines that names the encoding of a file (PEP 263)."""


@dataclass(frozen=True, slots=True)
class Import:
    """The meaning of a name of an import statement.

    Attributes:
        package: The first part of the module's name.
        file: The neighbour that it is, or is taken from; None for other modules.
        attribute: The name taken from the module; empty for the module itself.
        runs: The neighbours that the import runs.
    """

    name: str
    package: str
    file: Path | None
    attribute: str
    runs: tuple[Path, ...]


@dataclass(slots=True)
class SourceFile:
    """A file and its kept statements; it has none if Python cannot read it."""

    path: Path
    data: bytes
    is_python: bool
    statements: tuple[Statement, ...]
    imports: dict[int, list[Import]]
    is_whole: bool = False
    kept: set[int] = field(default_factory=set[int])
    wanted: set[str] = field(default_factory=set[str])
    asked: set[str] = field(default_factory=set[str])

    def kept_statements(self) -> list[Statement]:
        """Return the statements that stay."""
        return [self.statements[number] for number in self.kept]

    def meanings(self, name: str) -> list[Import]:
        """Return the meanings of a name as an import, anywhere in the file."""
        return [each for found in self.imports.values() for each in found if each.name == name]

    def binding(self, name: str) -> list[Statement]:
        """Return the statements that bind a name, other than imports."""
        return [
            statement
            for statement in self.statements
            if name in statement.binds and not isinstance(statement.nodes[0], IMPORTS)
        ]

    def locals(self) -> set[str]:
        """Return the file's own names in kept code: wanted ones, and kept definitions."""
        kept = (
            statement
            for statement in self.kept_statements()
            if isinstance(statement.nodes[0], DEFINITIONS)
        )
        names = (each.binds for each in kept)
        return {name for name in self.wanted if self.binding(name)}.union(*names)

    def data_names(self) -> set[str]:
        """Return the wanted names that hold values which can change."""
        return {name for name in self.locals() if any(map(_is_data, self.binding(name)))}


def _is_data(statement: Statement) -> bool:
    """Return whether a statement makes a mutable value: neither a function nor a plain literal."""
    node = statement.nodes[0]
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    return not isinstance(node, DEFINITIONS) and not isinstance(value, ast.Constant)


# --- reading ------------------------------------------------------------------------------------


def read_source(path: Path, folder: Path) -> SourceFile:
    """Read a file; neighbours are the files in `folder` or below.

    Raises:
        OSError: It cannot be read.
    """
    data = path.read_bytes()
    try:
        statements = statements_of(ast.parse(data))
    except (SyntaxError, ValueError, RecursionError):
        return SourceFile(path, data, False, (), {})
    imports = {
        number: found
        for number, statement in enumerate(statements)
        if (found := list(_imports(statement, path, folder)))
    }
    return SourceFile(path, data, True, statements, imports)


def _imports(statement: Statement, path: Path, folder: Path) -> Iterator[Import]:
    for node in statement.walk():
        if isinstance(node, ast.Import):
            for alias in node.names:
                runs = tuple(files_of_import(alias.name, path, folder))
                first = alias.name.partition(".")[0]
                is_dotted = "." in alias.name and alias.asname is None
                file = runs[-1] if runs else None  # of a dotted name, all of it is wanted
                yield Import(alias.asname or first, first, file, "*" if is_dotted else "", runs)
        elif isinstance(node, ast.ImportFrom):
            yield from _imports_from(node, path, folder)


def _imports_from(node: ast.ImportFrom, path: Path, folder: Path) -> Iterator[Import]:
    module = node.module or ""
    outer = tuple(files_of_import(module, path, folder, level=node.level)) if module else ()
    for alias in node.names:
        name = f"{module}.{alias.name}".strip(".")
        runs = tuple(files_of_import(name, path, folder, level=node.level))
        is_module = len(runs) > len(outer)
        attribute = "" if is_module else alias.name
        file = runs[-1] if runs else None
        yield Import(alias.asname or alias.name, module.partition(".")[0], file, attribute, runs)


# --- writing ------------------------------------------------------------------------------------


def text_of(file: SourceFile) -> bytes:
    """Return a file with empty lines for dropped code; the whole file if the rest is not Python."""
    if file.is_whole:
        return file.data
    encoding, _ = tokenize.detect_encoding(io.BytesIO(file.data).readline)
    lines = io.StringIO(file.data.decode(encoding), newline=None).read().split("\n")
    spans = [
        range(statement.lines[0], statement.lines[1] + 1) for statement in file.kept_statements()
    ]
    stays = set[int]().union(*spans)
    kept = [
        line if number in stays or _is_ours(number, line) else ""
        for number, line in enumerate(lines, 1)
    ]
    data = ("\n".join(kept).rstrip("\n") + "\n").encode(encoding)
    try:
        compile(data, file.path.name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return file.data
    return data


def _is_ours(number: int, line: str) -> bool:
    """Return whether a comment is kept: the encoding of the file, and notes of ctk in a copy."""
    return line.startswith(NOTE) or (number <= 2 and _ENCODING.match(line) is not None)
