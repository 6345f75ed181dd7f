"""The operators that a pass mentions: in its own code, and in what that uses of its module.

    if node.target is torch.ops.aten.mul.Tensor:      -> aten.mul.Tensor
    _SPLITS = frozenset({aten.split.Tensor})          -> aten.split.Tensor, where `_SPLITS` is used
    if node.target is aten.add:                       -> every overload of aten.add
    if node.target is torch.relu:                     -> torch.relu, if no operator is mentioned

Read off the source: nothing is called.
"""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, cast

import torch

from ctk.compiler.torch_compat import operators


def operators_in(values: Iterable[object]) -> list[object]:
    """Return the operators, or else the torch functions, among what a definition mentions."""
    found: dict[object, None] = {}
    functions: dict[object, None] = {}
    for value in values:
        if operators.kind_of(value) == "packet":
            found |= dict.fromkeys(operators.overloads_of(value))
        elif operators.declared_by(value) is not None:
            found[value] = None
        elif _is_torch_function(value):
            functions[value] = None
    return sorted(found or functions, key=str)


def mentioned(module: ModuleType, name: str) -> Iterator[object]:
    """Yield what the names in a definition of a module stand for, and in those that it uses."""
    known = _definitions(module)
    todo, seen = [name], {name}
    while todo:
        for node in ast.walk(known.get(todo.pop(), ast.Module([], []))):
            if isinstance(node, ast.Attribute):
                yield _value(node, module)
            elif isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                todo.append(node.id)
                yield getattr(module, node.id, None)
                yield from _members(getattr(module, node.id, None))


def _definitions(module: ModuleType) -> dict[str, ast.stmt]:
    """Return the statements of a module that define a name; none where there is no source."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return {}
    found: dict[str, ast.stmt] = {}
    for each in tree.body:
        if isinstance(each, (ast.ClassDef, ast.FunctionDef)):
            found[each.name] = each
        elif isinstance(each, (ast.Assign, ast.AnnAssign)):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            found |= {one.id: each for one in targets if isinstance(one, ast.Name)}
    return found


def _members(value: object) -> Iterator[object]:
    if isinstance(value, (list, tuple, set, frozenset, Mapping)):
        members = cast("Iterable[object]", value)
        yield from (each for each in members if hasattr(each, "__name__"))


def _value(node: ast.expr, module: ModuleType) -> object:
    """Return what a dotted name stands for; None where a part of it is computed."""
    if isinstance(node, ast.Name):
        return getattr(module, node.id, None)
    if not isinstance(node, ast.Attribute):
        return None
    owner = _value(node.value, module)
    is_known = isinstance(owner, ModuleType) or operators.kind_of(owner) == "packet"
    return getattr(owner, node.attr, None) if is_known else None


def _is_torch_function(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    is_builtin = isinstance(value, BuiltinFunctionType) and module in ("", "torch", "torch._C")
    is_functional = isinstance(value, FunctionType) and module == "torch.nn.functional"
    return is_functional or (is_builtin and hasattr(torch, getattr(value, "__name__", "")))
