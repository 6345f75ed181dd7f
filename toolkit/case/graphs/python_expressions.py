"""Values and calls of a graph as Python expressions.

Every text is built from checked names and `repr` of plain values, so that an untrusted graph cannot
inject code into a program.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch.fx import Node

from ctk.compiler.torch_compat.gpu.triton_kernels import WRAPPER_MODULE, WRAPPERS
from ctk.toolkit.case.formats.plain_text import words
from ctk.toolkit.case.graphs.argument_json import encode_value
from ctk.toolkit.case.graphs.callables import is_file, module_of_target
from ctk.toolkit.case.graphs.json_listing import argument_text, name_text
from ctk.toolkit.case.graphs.triton_kernels import is_kernel_call, kept_arguments

_SIGNS = words("""
    add + sub - mul * truediv / floordiv // mod % pow ** matmul @ and_ & or_ | xor ^
    lshift << rshift >> eq == ne != lt < le <= gt > ge >=
""")
INFIX = {f"operator.{n}": sign for n, sign in zip(_SIGNS[::2], _SIGNS[1::2], strict=True)}
PREFIX = {"operator.neg": "-", "operator.pos": "+", "operator.invert": "~", "operator.inv": "~"}


@dataclass(frozen=True, slots=True)
class VariableNames:
    """The variables of a function by node name, and the modules that its text needs."""

    nodes: Mapping[str, str]
    imports: set[str]


def expression(value: object, names: VariableNames) -> str:
    """Return a value of a graph's arguments as a Python expression.

    Raises:
        CaseError: A case cannot hold its type.
    """

    def write_name(kind: str, content: Any) -> str:
        if kind == "node":
            return names.nodes[content]
        if kind == "target":
            return function_text(content, names)
        if kind == "triton_type":
            names.imports.add("triton.language")
        return f'float("{content}")' if kind == "float" else name_text(kind, content)

    return argument_text(encode_value(value, "argument"), write_name)


def function_text(name: str, names: VariableNames) -> str:
    """Return a function's name (`callables`) as an expression; collect the module to import."""
    if ":" in name:
        module, _, function = name.partition(":")
        if is_file(module_of_target(name) or ""):
            return f'find_loaded("{module}").{function}'
        names.imports.add(module)
        return f"{module}.{function}"
    if name.startswith("builtins."):
        return name.removeprefix("builtins.")
    names.imports.add(name.split(".")[0])
    if name.startswith(("torch._functorch.", "torch.nn.attention.")):
        names.imports.add(name.rpartition(".")[0])
    if name.rpartition(".")[2] in WRAPPERS:
        names.imports.add(WRAPPER_MODULE)
    return name


def keywords_text(node: Node, names: VariableNames) -> str:
    """Return the keyword arguments of a node as a dictionary; a Triton kernel gets its number."""
    text = expression(kept_arguments(node), names)
    return f"with_numbers({text})" if is_kernel_call(node.target) else text


def call_text(node: Node, callee: str, names: VariableNames) -> str:
    """Return the line of a call: an operator, an index, an attribute, a method or a function.

    Args:
        callee: Qualified name, name of the method, or `self.<module>`.
    """
    variable = names.nodes[node.name]
    args = node.args
    if callee == "operator.setitem" and len(args) == 3 and not node.kwargs:
        owner, index = _operand(args[0], names), _index(args[1], names)
        line = f"{owner}[{index}] = {expression(args[2], names)}"
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
    if is_kernel_call(node.target):
        return f"{function_text(callee, names)}(**{keywords_text(node, names)})"
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
    """Return the text between the brackets of `x[...]`, slices as `1:2`."""
    if type(value) is not tuple or not value:
        return _subscript(value, names)
    parts = [_subscript(part, names) for part in cast("tuple[object, ...]", value)]
    return ", ".join(parts) + ("," if len(parts) == 1 else "")


def _subscript(value: object, names: VariableNames) -> str:
    if not isinstance(value, slice):
        return expression(value, names)
    bounds = (value.start, value.stop, value.step)
    start, stop, step = ("" if part is None else expression(part, names) for part in bounds)
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
