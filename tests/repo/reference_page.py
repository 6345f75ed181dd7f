"""Write `docs/reference.md` from the docstrings: `python -m tests.repo.reference_page`.

The page lists the public names of `ctk/__init__.pyi` with their signatures and docstrings, the
commands with their help, and the environment variables. All of it is read from the syntax trees.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.project import ROOT, python_files, tree_of

PAGE = ROOT / "docs" / "reference.md"
STUB = ROOT / "ctk" / "__init__.pyi"

HEAD = """# Reference

Generated from the docstrings by `python -m tests.repo.reference_page`: do not edit. Passes and
their options are on [passes.md](passes.md); `ctk COMMAND --help` lists the options of a command.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *library(), *commands(), *variables()]) + "\n"


def library() -> Iterator[str]:
    """Yield the section of the public names, in the order of the alphabet."""
    yield "## Library\n"
    yield "`import ctk` loads a name's module when the name is first used.\n"
    for name, node in sorted(public_names().items(), key=lambda item: item[0].lower()):
        yield f"### `ctk.{signature(name, node)}`\n"
        yield from text_of(node)


def public_names() -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """Return the definition of each public name."""
    imports = [node for node in tree_of(STUB).body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: definition(str(node.module), alias.name)
        for node in imports
        for alias in node.names
    }


def definition(module: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    """Return the function or class that a module of the packages defines."""
    path = ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
    nodes = [
        node
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    ]
    return nodes[-1]  # behind the overloads


def signature(name: str, node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return a call with the names of parameters: positional, keyword-only, with a default."""
    if isinstance(node, ast.ClassDef):
        return name
    given = node.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    if given.vararg:
        names.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        names.append("*")
    names += [argument.arg for argument in given.kwonlyargs]
    if given.kwarg:
        names.append(f"**{given.kwarg.arg}")
    return f"{name}({', '.join(names)})"


def text_of(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    """Yield a docstring as Markdown: prose as it is, its sections as text."""
    prose, *rest = re.split(r"^(?=\w[\w ]*:$)", ast.get_docstring(node) or "", flags=re.MULTILINE)
    yield prose.strip() + "\n"
    if rest:
        yield "```text\n" + "".join(rest).strip() + "\n```\n"


def commands() -> Iterator[str]:
    """Yield one row per command: its name, and the first line of its help."""
    yield "## Commands\n"
    yield "| command | help |"
    yield "|---|---|"
    for path in python_files("toolkit/cli/commands"):
        yield from (f"| `ctk {name}` | {text} |" for name, text in commands_of(path))
    yield ""


def commands_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each command that a file defines, and the first line of its function."""
    functions = {
        node.name: node for node in tree_of(path).body if isinstance(node, ast.FunctionDef)
    }
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Command":
            name, function = node.args[:2]
            text = ast.get_docstring(functions[ast.unparse(function)]) or ""
            yield ast.literal_eval(name), " ".join(text.partition("\n\n")[0].split())


def variables() -> Iterator[str]:
    """Yield the table of environment variables."""
    text = ast.get_docstring(tree_of(ROOT / "compiler" / "options" / "environment.py")) or ""
    yield "## Environment variables\n"
    yield from (line for line in text.splitlines() if line.startswith("|"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
