"""The static closure of code: the definitions and files that a name needs, read off the source.

    carry       `main(...)` in a script needs `main`, and the names that `main` uses in its module
    slicing     a case needs `fold` of the user's job.py, and the neighbours that `fold` imports
    rules       a pass mentions the operators that its helpers name

Nothing is run. The closure of a *value*, with its state, is `identity.py`.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


def reachable(starts: Iterable[T], edges: Callable[[T], Iterable[T]]) -> tuple[T, ...]:
    """Return nodes and all that they lead to, each once, nearest first.

    >>> reachable([1], {1: [2, 3], 2: [1], 3: []}.get)
    (1, 2, 3)
    """
    found, todo = dict[T, None](), list(starts)
    while todo:
        node = todo.pop(0)
        if node not in found:
            found[node] = None
            todo.extend(edges(node))
    return tuple(found)


def parse_file(path: Path) -> ast.Module | None:
    """Return the tree of a Python file; None if it cannot be read or parsed."""
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def names_in(tree: ast.AST) -> set[str]:
    """Return the plain names that a piece of source uses."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def definitions_in(body: Sequence[ast.stmt]) -> dict[str, ast.stmt]:
    """Return the functions, classes and assignments among statements, by the name they define."""
    return {name: node for node in body for name in defined_names(node)}


def defined_names(node: ast.stmt) -> list[str]:
    """Return the names that a function, a class or an assignment defines."""
    if isinstance(node, DEFINITIONS):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]
