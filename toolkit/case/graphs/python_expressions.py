"""Values and calls of a graph as Python expressions.

Every text is built from checked names and `repr` of plain values, so that an untrusted graph cannot
inject code into a program.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Node

from ctk.toolkit.case.graphs.argument_json import encode_value

INFIX = {
    "operator.add": "+",
    "operator.sub": "-",
    "operator.mul": "*",
    "operator.truediv": "/",
    "operator.floordiv": "//",
    "operator.mod": "%",
    "operator.pow": "**",
    "operator.matmul": "@",
    "operator.and_": "&",
    "operator.or_": "|",
    "operator.xor": "^",
    "operator.lshift": "<<",
    "operator.rshift": ">>",
    "operator.eq": "==",
    "operator.ne": "!=",
    "operator.lt": "<",
    "operator.le": "<=",
    "operator.gt": ">",
    "operator.ge": ">=",
}
PREFIX = {"operator.neg": "-", "operator.pos": "+", "operator.invert": "~", "operator.inv": "~"}


@dataclass(frozen=True, slots=True)
class VariableNames:
    """The variables of a function, and the modules that its text needs."""

    nodes: Mapping[Node, str]
    imports: set[str]


def expression(value: object, names: VariableNames) -> str:
    """Return a value of a graph's arguments as a Python expression.

    Raises:
        CaseError: A case cannot hold its type.
    """
    if isinstance(value, Node):
        return names.nodes[value]
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, complex):
        return f"complex({expression(value.real, names)}, {expression(value.imag, names)})"
    if isinstance(value, slice):
        return f"slice({_join_expressions((value.start, value.stop, value.step), names)})"
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        items = [f"{expression(key, names)}: {expression(item, names)}" for key, item in pairs]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, tuple | list):
        return _sequence(cast("Sequence[object]", value), names)
    return _leaf(value, names)


def _sequence(value: Sequence[object], names: VariableNames) -> str:
    inner = _join_expressions(value, names)
    if isinstance(value, torch.Size):
        return f"torch.Size([{inner}])"
    if isinstance(value, tuple):
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return f"[{inner}]"


def _leaf(value: object, names: VariableNames) -> str:
    """Write a dtype, device, layout, memory format, range, Ellipsis or function."""
    encoded = cast("dict[str, Any]", encode_value(value, "argument"))
    kind, content = next(iter(encoded.items()))
    if kind == "target":
        return function_text(content, names)
    if kind == "device":
        return f"torch.device({content!r})"
    if kind in ("ellipsis", "range"):
        return "..." if value is Ellipsis else repr(value)
    return f"torch.{content}"


def _join_expressions(values: Sequence[object], names: VariableNames) -> str:
    return ", ".join(expression(value, names) for value in values)


def function_text(name: str, names: VariableNames) -> str:
    """Return a function's name (`callables`) as an expression; collect the module to import."""
    if ":" in name:
        module, _, function = name.partition(":")
        names.imports.add(module)
        return f"{module}.{function}"
    if name.startswith("builtins."):
        return name.removeprefix("builtins.")
    names.imports.add(name.split(".")[0])
    if name.startswith(("torch._functorch.", "torch.nn.attention.")):
        names.imports.add(name.rpartition(".")[0])
    return name


def call_text(node: Node, callee: str, names: VariableNames) -> str:
    """Return the line of a call: an operator, an index, an attribute, a method or a function.

    Args:
        callee: Qualified name, name of the method, or `self.<module>`.
    """
    variable = names.nodes[node]
    args = node.args
    if callee == "operator.setitem" and len(args) == 3 and not node.kwargs:
        line = (
            f"{_operand(args[0], names)}[{_index(args[1], names)}] = {expression(args[2], names)}"
        )
        return f"{line}; {variable} = None" if node.users else line
    return f"{variable} = {_call(node, callee, names)}"


def _call(node: Node, callee: str, names: VariableNames) -> str:
    args = node.args
    if node.op == "call_function" and not node.kwargs:
        if callee in INFIX and len(args) == 2:
            return f"{_operand(args[0], names)} {INFIX[callee]} {_operand(args[1], names)}"
        if callee in PREFIX and len(args) == 1:
            return f"{PREFIX[callee]}{_operand(args[0], names)}"
        if callee == "operator.getitem" and len(args) == 2:
            return f"{_operand(args[0], names)}[{_index(args[1], names)}]"
        if callee == "builtins.getattr" and len(args) == 2:
            return f"{_operand(args[0], names)}.{args[1]}"
    parts = [expression(arg, names) for arg in args]
    parts += [f"{key}={expression(value, names)}" for key, value in node.kwargs.items()]
    if node.op == "call_method":
        return f"{_operand(args[0], names)}.{callee}({', '.join(parts[1:])})"
    function = function_text(callee, names) if node.op == "call_function" else callee
    return f"{function}({', '.join(parts)})"


def _operand(value: object, names: VariableNames) -> str:
    text = expression(value, names)
    is_bare = isinstance(value, Node) or text.startswith(("float(", "complex(", "torch."))
    is_bare = is_bare or (isinstance(value, int | float) and not text.startswith("-"))
    return text if is_bare else f"({text})"


def _index(value: object, names: VariableNames) -> str:
    if isinstance(value, slice):
        return _slice(value, names)
    if type(value) is tuple and value:
        parts = [_index_part(part, names) for part in cast("tuple[object, ...]", value)]
        return ", ".join(parts) + ("," if len(parts) == 1 else "")
    return expression(value, names)


def _index_part(value: object, names: VariableNames) -> str:
    return _slice(value, names) if isinstance(value, slice) else expression(value, names)


def _slice(value: slice, names: VariableNames) -> str:
    start, stop, step = (
        "" if part is None else expression(part, names)
        for part in (value.start, value.stop, value.step)
    )
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
