"""The operators that a module mentions: in its tables, and in the code of its functions.

    if node.target is torch.ops.aten.mul.Tensor:      -> aten.mul.Tensor
    _SPLITS = frozenset({aten.split.Tensor})          -> aten.split.Tensor
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


def mentioned(module: ModuleType) -> list[object]:
    """Return the operators that stand in a module, or else the torch functions, each once."""
    found: dict[object, None] = {}
    functions: dict[object, None] = {}
    for value in (*_members(vars(module).values()), *_named(module)):
        if operators.kind_of(value) == "packet":
            found |= dict.fromkeys(operators.overloads_of(value))
        elif operators.declared_by(value) is not None:
            found[value] = None
        elif _is_torch_function(value):
            functions[value] = None
    return sorted(found or functions, key=str)


def _members(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, (list, tuple, set, frozenset, Mapping)):
            yield from (
                each for each in cast("Iterable[object]", value) if hasattr(each, "__name__")
            )
        elif hasattr(value, "__name__"):
            yield value


def _named(module: ModuleType) -> Iterator[object]:
    """Yield what the dotted names in a module's source stand for."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield _value(node, module)


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
