"""Calls of torch's operators, as C.

    DO(call, "aten::convolution", "", ARGS(9, T(&v[1]), T(&weights[0]), NONE, L(I(1), I(1)), ...))

The dispatcher takes tensors, integers (types, layouts, devices and memory formats are such),
floats, strings, optional ones and lists of these. It does not take `Scalar`s, numbers of either
type: of some operators torch has a C function of its own that does (`library_calls.py`).

Source: torch/csrc/stable and torch/csrc/inductor/aoti_torch/c, read for the arguments of the
functions and their ownership, tried with torch 2.11 and 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import torch

from ctk.compiler.codegen.schedule.calls import BINDINGS
from ctk.compiler.packages.c_wrapper.c_literals import float_text, int_text, size_text, string_text
from ctk.compiler.packages.c_wrapper.entries import DTYPES, NotInC
from ctk.compiler.packages.c_wrapper.variables import Find, Number, Tensor
from ctk.compiler.runtime.steps import Argument, Call, Ref
from ctk.compiler.sizes.index import Index
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.fx.arguments import Parameter, dispatched_parameters
from ctk.compiler.torch_compat.process import c_shim

_FROM_BINDINGS = {binding: target for target, binding in BINDINGS.items()}
_LIBRARIES = ("aten", "mkldnn", "mkl", "onednn", "quantized", "prepacked")
"""Operators in libtorch_cpu.so: others are defined in Python or in other libraries."""

_MOVING = re.compile(r"aten::(resize|resize_as|set|set_data|swap|share_memory)_")
"""Operators that give a tensor other memory: C identifies a tensor by its first element."""

_LAZY = re.compile(r"aten::(_neg_view|_conj|conj)(_copy)?$")
"""Operators whose result has other values than its memory: C takes values from memory."""


def operator_of(call: Call) -> Any:
    """Return the operator overload that a step calls.

    Raises:
        NotInC: It is not an operator of torch's own library.
    """
    target: Any = _FROM_BINDINGS.get(call.function, call.function)
    if operators.kind_of(target) != "overload":
        name = getattr(target, "__name__", str(target))
        raise NotInC(f"{call.name} calls {name}, which is not an operator of torch")
    name, overload = c_shim.name_and_overload_of(target)
    if name.partition("::")[0] not in _LIBRARIES or operators.python_code_of(target):
        raise NotInC(f"{call.name} calls {name}, which libtorch_cpu.so does not have")
    if _MOVING.match(name):
        raise NotInC(f"{call.name} calls {name}.{overload}, which gives a tensor other memory")
    if _LAZY.match(name):
        raise NotInC(f"{call.name} calls {name}, whose result differs from its memory")
    return target


def values_of(call: Call, operator: Any) -> list[tuple[Parameter, Argument]]:
    """Return each argument of an operator with its value in a step, or its default.

    Raises:
        NotInC: A required one is missing.
    """
    found: list[tuple[Parameter, Argument]] = []
    for number, parameter in enumerate(dispatched_parameters(operator)):
        if number < len(call.args):
            value = call.args[number]
        elif parameter.name in call.kwargs:
            value = call.kwargs[parameter.name]
        elif not parameter.has_default:
            raise NotInC(f"{call.name} gives {operator} no {parameter.name}")
        else:
            value = parameter.default
        found.append((parameter, value))
    return found


def argument_text(parameter: Parameter, value: Argument, find: Find) -> str:
    """Return an argument for the dispatcher.

    Raises:
        NotInC: The dispatcher's C function does not take it.
    """
    try:
        return _text(parameter.type, value, find, parameter.length)
    except NotInC as error:
        raise NotInC(f"{parameter.name}: {error}") from error


def _text(kind: str, value: Argument, find: Find, length: int | None = None) -> str:
    """Return an argument of a type. A macro of one letter, `O` before it if it is optional."""
    if inner := _within("Optional", kind):
        text = "NONE" if value is None else _text(inner, value, find, length)
        return text if value is None else f"O{text}"
    if inner := _within("List", kind):
        return _list_text(inner, value, find, length)
    if kind == "Tensor":
        return f"T({tensor_text(value, find)})"
    if kind == "float":
        return f"F({number_text(value, find, 'float')})"
    if kind == "str" and isinstance(value, str):
        return f"S({string_text(value)})"
    if kind in ("int", "SymInt", "bool"):
        return f"I({number_text(value, find, 'int')})"
    return f"I({_code(kind, value)})"


def _list_text(inner: str, value: Argument, find: Find, length: int | None) -> str:
    if isinstance(value, (int, float)) and length:  # one number for all
        value = [value] * length
    if not isinstance(value, (list, tuple)):
        raise NotInC(f"{value!r} is no list")
    parts = [_text(inner, each, find) for each in cast("Sequence[Argument]", value)]
    return f"L({', '.join([str(len(parts)), *(parts or ['NONE'])])})"


def _within(outer: str, kind: str) -> str:
    return kind[len(outer) + 1 : -1] if kind.startswith(f"{outer}[") else ""


def tensor_text(value: Argument, find: Find) -> str:
    """Return the address of a tensor; raise `NotInC` for another value."""
    place = find(value) if isinstance(value, Ref) else None
    if not isinstance(place, Tensor):
        raise NotInC(f"{value!r} is no tensor")
    return place.text


def number_text(value: Argument, find: Find, kind: str) -> str:
    """Return a number as an expression of C.

    Raises:
        NotInC: The value is not a number, or of another kind.
    """
    if isinstance(value, Ref):
        place = find(value)
        if isinstance(place, Number) and _is_of(place, kind):
            return place.text
        raise NotInC(f"{value!r} is not a number of the type {kind}")
    if isinstance(value, Index):
        return size_text(value)
    if kind == "float" and isinstance(value, (int, float)):
        return float_text(float(value))
    if isinstance(value, int):
        return int_text(int(value))
    raise NotInC(f"{value!r} is not a number of the type {kind}")


def _is_of(place: Number, kind: str) -> bool:
    return not place.is_storage_offset and (place.kind, kind) != ("float", "int")


def _code(kind: str, value: Argument) -> str:
    """Return torch's number for a type of elements, a layout, a device, a memory format."""
    if kind == "ScalarType" and isinstance(value, torch.dtype) and value in DTYPES:
        return str(DTYPES[value][1])
    if kind == "MemoryFormat" and isinstance(value, torch.memory_format):
        return str(c_shim.MEMORY_FORMATS[value])
    if kind == "Layout" and value is torch.strided:
        return "0"
    if kind == "Device" and isinstance(value, (str, torch.device)):
        on_cpu = torch.device(value).type == "cpu"
        if on_cpu:
            return "CPU"
    if kind in ("ScalarType", "MemoryFormat", "Layout") and isinstance(value, int):
        return str(value)  # schemas hold defaults as numbers
    raise NotInC(f"C cannot give {value!r} as {kind}")
