"""Programs in which one line runs outside of Dynamo: the counterfactual of a line.

    y = np.fix(x.numpy())      ->   y = _outside(lambda: np.fix(x.numpy()))
    self.calls += 1            ->   _outside(lambda: setattr(self, "calls", self.calls + 1))
    if flag(x): ...            ->   if _outside(lambda: flag(x)): ...

`_outside` calls its argument with Dynamo switched off. If exactly this makes a wrong program right,
Dynamo handles that line wrongly. Statements that cannot be moved into a lambda (`with`, `raise`,
`yield`, `super()`, plain names) are left out. Nothing is run here.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from ctk.toolkit.reduce.program.program_edits import replace_node
from ctk.toolkit.reduce.program.syntax import (
    blocks_of,
    copy_tree,
    number_nodes,
    number_of,
    parse_program,
    split_future,
    text_of,
)

OUTSIDE = """import torch


@torch.compiler.disable
def _outside(run):
    return run()
"""
AROUND = ("model", "inputs", "warmups", "between", "config")
"""Functions of a program that run outside anyway; functions defined in `model` do not."""

_IMMOVABLE = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)
_BLOCKS = (ast.If, ast.For, ast.While)
_COMPUTES = (
    ast.Call, ast.BinOp, ast.Subscript, ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp,
    ast.JoinedStr, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.IfExp,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outside:
    """One line moved out.

    Attributes:
        line: Of the given text, from 1; `column` from 0.
        calls: Functions of the program that it calls: the fault may be in them.
        others: Other lines of the text that make the program pass in the same way.
    """

    line: int
    source: str
    calls: frozenset[str]
    text: str
    column: int = 0
    others: tuple[int, ...] = ()


def outside_lines(text: str) -> Iterator[Outside]:
    """Yield the program with each line that can be moved outside, in the order of the text."""
    tree = number_nodes(_WithoutAugmented().visit(parse_program(text)))
    own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    lines = text.splitlines()
    for node in _movable(tree):
        made, nodes = copy_tree(tree)
        if _move_out(nodes[number_of(node)]):
            calls = {_callee_name(each) for each in ast.walk(node)} & own
            line = node.lineno
            source = lines[line - 1].partition("  #")[0].strip()
            if node.end_lineno != line and not isinstance(node, _BLOCKS):
                source = ast.unparse(node)  # of several lines
            yield Outside(line, source, frozenset(calls), _with_helper(made), node.col_offset)


def with_break(text: str, line: int) -> str | None:
    """Return the program with a graph break before and after a line, which itself stays compiled.

    The control of a line outside: a break alone may also make a program pass. None if no statement
    of a block begins there.
    """
    tree = parse_program(text)
    for node in ast.walk(tree):
        for block in blocks_of(node):
            place = next((i for i, each in enumerate(block) if each.lineno == line), None)
            if place is None:
                continue
            own = block[place]
            after = [] if isinstance(own, (ast.Return, *_BLOCKS)) else [_break()]
            block[place : place + 1] = [_break(), own, *after]
            return _with_helper(ast.fix_missing_locations(tree))
    return None


def _break() -> ast.stmt:
    return ast.Expr(_call_outside(ast.Constant(None)))


def outside_calls(text: str, line: int) -> Iterator[Outside]:
    """Yield the program with each call outside that a statement makes, the largest first."""
    tree = parse_program(text)
    statements = [n for n in _movable(tree) if n.lineno == line]
    found = [each for node in statements[:1] for each in ast.walk(node) if _is_plain_call(each)]
    for call in sorted(found, key=lambda each: -len(ast.unparse(each))):
        made, nodes = copy_tree(tree)
        replace_node(made, nodes[number_of(call)], _call_outside(copy.deepcopy(call)))
        source = ast.unparse(call)
        yield Outside(call.lineno, source, frozenset(), _with_helper(made), call.col_offset)


def _is_plain_call(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and _can_move(node)


class _WithoutAugmented(ast.NodeTransformer):
    """Writes `a.b += c` and `a[b] += c` as assignments."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        if isinstance(node.target, ast.Name):
            return node
        old = ast.parse(ast.unparse(node.target), mode="eval").body
        value = ast.BinOp(old, node.op, node.value)
        return ast.copy_location(ast.Assign([node.target], value, lineno=node.lineno), node)


def _callee_name(node: ast.AST) -> str:
    func = node.func if isinstance(node, ast.Call) else None
    return str(getattr(func, "attr", getattr(func, "id", "")))


def _with_helper(tree: ast.Module) -> str:
    future, rest = split_future(text_of(tree))
    return "\n".join([*([future] if future else []), OUTSIDE, rest, ""])


def _movable(tree: ast.Module) -> Iterator[ast.stmt | ast.Lambda]:
    """Yield the statements in functions that are compiled, and lambdas there."""
    for node in tree.body:
        yield from _inside(node, is_compiled=False)


def _inside(node: ast.AST, *, is_compiled: bool) -> Iterator[ast.stmt | ast.Lambda]:
    is_function = isinstance(node, (ast.FunctionDef, ast.Lambda))
    if isinstance(node, ast.Lambda) or (is_compiled and isinstance(node, ast.stmt)):
        yield node
    if isinstance(node, ast.FunctionDef) and node.name in AROUND and not is_compiled:
        for child in ast.walk(node):  # its inner functions are compiled, its own lines are not
            if child is not node and isinstance(child, (ast.FunctionDef, ast.Lambda)):
                yield from _inside(child, is_compiled=False)
        return
    for child in ast.iter_child_nodes(node):
        yield from _inside(child, is_compiled=is_compiled or is_function)


def _move_out(node: ast.AST) -> bool:
    """Move the expression of a statement outside, in place; return whether that is possible."""
    match node:
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target], value=value):
            return _move_store_out(node, target, value)
        case (
            ast.Assign(value=value)
            | ast.Return(value=value)
            | ast.Expr(value=value)
            | ast.AugAssign(value=value)
            | ast.AnnAssign(value=value)
        ) if value is not None:
            field = "value"
        case ast.If(test=value) | ast.While(test=value):
            field = "test"
        case ast.For(iter=value):
            field = "iter"
        case ast.Lambda(body=value):
            field = "body"
        case _:
            return False
    if not _can_move(value):
        return False
    setattr(node, field, _call_outside(value))
    return True


def _move_store_out(
    node: ast.Assign, target: ast.Attribute | ast.Subscript, value: ast.expr
) -> bool:
    """Make `a.b = v` and `a[b] = v` a call that is made outside."""
    if any(isinstance(each, _IMMOVABLE) for each in ast.walk(value)):
        return False
    if isinstance(target, ast.Attribute):
        name: ast.expr = ast.Name("setattr", ast.Load())
        arguments: list[ast.expr] = [target.value, ast.Constant(target.attr), value]
    else:
        name = ast.Attribute(target.value, "__setitem__", ast.Load())
        arguments = [target.slice, value]
    call = _call_outside(ast.Call(name, arguments, []))
    node.targets, node.value = [ast.Name("_", ast.Store())], call
    return True


def _can_move(value: ast.expr) -> bool:
    parts = list(ast.walk(value))
    if any(isinstance(part, _IMMOVABLE) for part in parts):
        return False
    if any(isinstance(part, ast.Name) and part.id == "super" for part in parts):
        return False
    return any(isinstance(part, _COMPUTES) for part in parts)


def _call_outside(value: ast.expr) -> ast.expr:
    nothing = ast.arguments([], [], None, [], [], None, [])
    return ast.Call(ast.Name("_outside", ast.Load()), [ast.Lambda(nothing, value)], [])
