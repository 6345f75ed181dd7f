"""The vocabulary of a pass: operators, numbers, types and words in its code and its callees.

    if node.target is torch.ops.aten.mul.Tensor:      -> aten.mul.Tensor, no other overload
    _SPLITS = frozenset({aten.split.Tensor})          -> aten.split.Tensor, where `_SPLITS` is used
    if node.target is aten.add:                       -> every overload of aten.add
    if str(node.target) == "aten.mul.Tensor":         -> aten.mul.Tensor
    if node.target is torch.relu:                     -> torch.relu, unless operators are named
    if node.args[1] == -1:                            -> -1, and not 1, which is an index

Extracted from the source without calling it. Names resolve in the module, in the scopes around a
function, and in its own assignments and imports; the user's other modules are followed, torch and
ctk are not.
"""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, cast

import torch

from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.usercode.closure import DEFINITIONS, definitions_in, names_in

aten = torch.ops.aten
KNOWN_CODE = frozenset({"torch", "ctk", "numpy", "pytest", *sys.stdlib_module_names})
"""Packages whose code is not part of a pass."""


def operators_in(values: Iterable[object]) -> list[object]:
    """Return the operators among the mentions of a definition, or else the torch functions."""
    known: dict[object, None] = {}
    functions: dict[object, None] = {}
    words: dict[object, None] = {}
    for value in values:
        if operators.kind_of(value) == "packet":
            known |= dict.fromkeys(operators.overloads_of(value))
        elif operators.declared_by(value) is not None:
            known[value] = None
        elif isinstance(value, str):
            (known if value.startswith("aten") else words).update(
                dict.fromkeys(_operators_named(value))
            )
        elif _is_torch_function(value):
            functions[value] = None
    return sorted(known or functions or words, key=str)


def hints_in(values: Iterable[object]) -> tuple[object, ...]:
    """Return the numbers, dtypes, formats and words among the mentions of a definition."""
    kinds = (int, float, str, torch.dtype, torch.memory_format)
    hints = [value for value in values if isinstance(value, kinds)]
    return tuple({(type(hint), repr(hint)): hint for hint in hints}.values())


def find_mentions(module: ModuleType, name: str) -> Iterator[object]:
    """Yield the mentions of a definition of a module and of the definitions that it uses."""
    todo, seen = [(module, name)], {(module, name)}
    while todo:
        where, called = todo.pop()
        definition = _definitions(where).get(called)
        if definition is None:
            continue
        names = _scope(where, definition)
        nodes = list(ast.walk(definition))
        indices = {id(each.slice) for each in nodes if isinstance(each, ast.Subscript)}
        owners = {id(each.value) for each in nodes if isinstance(each, ast.Attribute)}
        for node in nodes:
            value = None if id(node) in indices | owners else _value(node, names)
            yield from _members(value)
            for used in _uses(node, value, where):
                if used not in seen:
                    seen.add(used)
                    todo.append(used)


def find_function_mentions(function: Any, module: ModuleType) -> Iterator[object]:
    """Yield the mentions of a function of a module, its closure included."""
    outer = str(getattr(function, "__qualname__", "")).partition(".")[0]
    yield from find_mentions(module, outer)
    for cell in getattr(function, "__closure__", None) or ():
        value = cell.cell_contents
        yield from _members(value)
        if isinstance(value, FunctionType) and value is not function:
            yield from find_mentions(module, value.__name__)


def helpers_of(module: ModuleType) -> set[str]:
    """Return the names that functions and classes of a module use of each other."""
    found: set[str] = set()
    for name, definition in _definitions(module).items():
        if isinstance(definition, DEFINITIONS):
            found |= names_in(definition) - {name}
    return found


def _definitions(module: ModuleType) -> dict[str, ast.stmt]:
    try:
        return _parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return {}


@lru_cache(maxsize=256)
def _parse(source: str) -> dict[str, ast.stmt]:
    return definitions_in(ast.parse(source).body)


def _scope(module: ModuleType, definition: ast.stmt) -> dict[str, object]:
    names: dict[str, object] = dict(vars(module))
    for node in ast.walk(definition):
        if isinstance(node, ast.Import):
            for name in node.names:
                bound = name.asname or name.name.partition(".")[0]
                names.setdefault(bound, sys.modules.get(name.name if name.asname else bound))
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            source = sys.modules.get(node.module)
            if source is None and node.module.partition(".")[0] == "torch":  # imported when it runs
                source = importlib.import_module(node.module)
            for name in node.names:
                names.setdefault(name.asname or name.name, getattr(source, name.name, None))
        elif isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    names.setdefault(target.id, _value(node.value, names))
    return names


def _uses(node: ast.AST, value: object, module: ModuleType) -> Iterator[tuple[ModuleType, str]]:
    if isinstance(node, ast.Name):
        yield module, node.id
    if isinstance(value, (FunctionType, type)) and value.__module__ != module.__name__:
        other = sys.modules.get(value.__module__)
        if other is not None and other.__name__.partition(".")[0] not in KNOWN_CODE:
            yield other, value.__name__


def _members(value: object) -> Iterator[object]:
    if isinstance(value, (list, tuple, set, frozenset, Mapping)):
        yield from cast("Iterable[object]", value)
    elif value is not None:
        yield value


def _value(node: ast.AST, names: Mapping[str, object]) -> object:
    """Return the value of an expression; None if a part of it is computed."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _value(node.operand, names)
        return -number if isinstance(number, (int, float)) else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = _value(node.value, names)
    is_known = isinstance(owner, ModuleType) or operators.kind_of(owner) == "packet"
    return getattr(owner, node.attr, None) if is_known else None


def _operators_named(word: str) -> tuple[object, ...]:
    """Return the operators of a name: `aten.mul.Tensor`, `aten::mul`, `mul`."""
    matched = re.fullmatch(r"(?:aten(?:\.|::))?([a-z_]\w*)(?:\.(\w+))?", word)
    packet = getattr(aten, matched[1], None) if matched else None
    if matched is None or operators.kind_of(packet) != "packet":
        return ()
    if matched[2] is None:
        return operators.overloads_of(packet)
    return tuple(
        overload
        for overload in operators.overloads_of(packet)
        if str(overload).endswith(matched[2])
    )


def _is_torch_function(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    is_builtin = isinstance(value, BuiltinFunctionType) and module in ("", "torch", "torch._C")
    is_functional = isinstance(value, FunctionType) and module == "torch.nn.functional"
    return is_functional or (is_builtin and hasattr(torch, getattr(value, "__name__", "")))
