"""Program text as a tree for edits: numbered nodes, copies, text, size.

Nodes are numbered in the order of `ast.walk`; a copy keeps the numbers, so that an edit applies to
it, and the `lineno`, so that a reduced program still knows its lines. Comments are lost.
"""

import ast
import builtins
import copy
from collections.abc import Iterator
from typing import cast

ENTRIES = ("model", "inputs")
"""Functions that every program must have."""

Size = tuple[int, int, int, str]


def parse_program(text: str) -> ast.Module:
    """Return the numbered tree of a program.

    Raises:
        SyntaxError: The text is not Python.
    """
    return number_nodes(ast.parse(text))


def number_nodes(tree: ast.Module) -> ast.Module:
    """Number the nodes of a tree, which is changed and returned."""
    for number, node in enumerate(ast.walk(tree)):
        node.number = number  # type: ignore[attr-defined]  # nodes take attributes
    return tree


def number_of(node: ast.AST) -> int:
    """Return the number of a node; -1 for a node that an edit made."""
    return getattr(node, "number", -1)


def copy_tree(tree: ast.Module) -> tuple[ast.Module, dict[int, ast.AST]]:
    """Return a copy of a tree, and its nodes by number."""
    made = copy.deepcopy(tree)
    return made, {number_of(node): node for node in ast.walk(made)}


def text_of(tree: ast.Module) -> str:
    """Return a program's text, with empty lines around functions and classes as people write."""
    text = ""
    for node, before in zip(tree.body, [None, *tree.body], strict=False):
        is_apart = any(isinstance(each, (ast.FunctionDef, ast.ClassDef)) for each in (node, before))
        gap = "\n\n\n" if is_apart else "\n"
        text += f"{gap if before is not None else ''}{ast.unparse(node).strip()}"
    return f"{text}\n"


def size_of(tree: ast.Module) -> Size:
    """Return the size of a program: statements, then nodes, then how large its constants are.

    A loop or another block around statements counts twice: straight lines are simpler. The text is
    the last of it, so that no two programs have the same size: the order is total.
    """
    blocks = (ast.If, ast.For, ast.While, ast.With, ast.Try)
    statements = statements_in(tree) + sum(isinstance(node, blocks) for node in ast.walk(tree))
    nodes = sum(1 for _ in ast.walk(tree))
    weights = sum(_weight(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return statements, nodes, weights, text_of(tree)


def statements_in(tree: ast.Module) -> int:
    """Return how many statements a program has, those inside others included."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree))


def _weight(value: object) -> int:
    if isinstance(value, bool) or value is None:
        return 0
    if isinstance(value, int):
        return min(abs(value), 1 << 40)
    return len(repr(value)) if value not in (0.0, 1.0) else 1


def lines_of(tree: ast.Module) -> dict[tuple[int, int], int]:
    """Return for each place (line, column) in a tree's text the line of its file."""
    found: dict[tuple[int, int], int] = {}
    again = ast.parse(text_of(tree))
    if ast.dump(again) != ast.dump(tree):  # an edit left out optional fields
        return found
    for new, old in zip(ast.walk(again), ast.walk(tree), strict=True):
        if isinstance(new, (ast.stmt, ast.expr)) and (line := getattr(old, "lineno", 0)):
            found[new.lineno, new.col_offset] = line
    return found


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements that a node holds."""
    for name in ("body", "orelse", "finalbody"):
        found = getattr(node, name, None)
        if isinstance(found, list) and found:
            yield cast("list[ast.stmt]", found)


def without(tree: ast.Module, numbers: set[int]) -> ast.Module:
    """Return a copy of a tree without some statements; an empty block gets `pass`."""
    made, nodes = copy_tree(tree)
    for node in nodes.values():
        for block in blocks_of(node):
            kept = [each for each in block if number_of(each) not in numbers]
            if not kept and node is not made and block is getattr(node, "body", None):
                kept = [ast.Pass()]
            block[:] = kept
    return made


def is_readable(tree: ast.Module) -> bool:
    """Return whether Python compiles a program and each name in it is bound somewhere.

    After `from x import *` any name may be bound.
    """
    try:
        compile(text_of(tree), "program.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    nodes = list(ast.walk(tree))
    bound = {name for node in nodes for name in names_bound_by(node)}
    bound |= {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    known = bound | set(dir(builtins)) | {"__file__", "__name__", "__doc__"}
    return "*" in bound or _names_used(tree) <= known


def _names_used(tree: ast.AST) -> set[str]:
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Load)}


def names_bound_by(node: ast.AST) -> set[str]:
    """Return the names that a node itself binds, without those of the nodes in it."""
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store() | ast.Del())
            | ast.FunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.arg(arg=name)
            | ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            return {name}
        case ast.alias(name=name, asname=other):
            return {other or name.partition(".")[0]}
        case _:
            return set()


def split_future(text: str) -> tuple[str, str]:
    """Return the `from __future__` lines of a program, which must come first, and the rest."""
    lines = text.splitlines()
    future = [line for line in lines if line.startswith("from __future__")]
    return "\n".join(future), "\n".join(line for line in lines if line not in future).strip()
