"""Calls of operators with `Scalar`s, which the dispatcher's C function does not take.

    aten.addmm(b, x, w, beta=1, alpha=2)    aoti_torch_cpu_addmm_out(out, b, x, w, 1.0, 2.0)

If torch has a C function for the operator, or for its `out` form, it is called. It takes each
`Scalar` as a float64, which is exact for tensors of floats: other calls are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ctk.compiler.packages.c_wrapper.c_literals import string_text
from ctk.compiler.packages.c_wrapper.entries import NotInC
from ctk.compiler.packages.c_wrapper.operator_calls import number_text, tensor_text
from ctk.compiler.packages.c_wrapper.variables import Find
from ctk.compiler.runtime.steps import Argument
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.fx.arguments import Parameter
from ctk.compiler.torch_compat.process import c_shim

_C_TYPES = {
    "Tensor": "AtenTensorHandle",
    "number": "double",
    "float": "double",
    "int": "int64_t",
    "bool": "int32_t",
}
_RESULT = "AtenTensorHandle*"


def call_lines(
    operator: Any, given: Sequence[tuple[Parameter, Argument]], find: Find, out: str
) -> list[str]:
    """Return the lines that call an operator through a C function of its own.

    Raises:
        NotInC: torch has no such function for these arguments.
    """
    types = [_C_TYPES.get(parameter.type) for parameter, _ in given]
    if operators.results_of(operator) != ("Tensor",) or None in types:
        raise NotInC(f"the C functions of torch do not take the numbers of {operator}")
    function, is_out = _function(operator, [each for each in types if each])
    tensors = [tensor_text(value, find) for each, value in given if each.type == "Tensor"]
    handles = iter(f"h[{number}]" for number in range(len(tensors)))
    passed = [
        next(handles) if each.type == "Tensor" else _number(each, value, find)
        for each, value in given
    ]
    passed = ["out", *passed] if is_out else [*passed, "&out"]
    parameters = ", ".join(["void*"] * is_out + _plain(types) + ["void**"] * (not is_out))
    name = string_text(function)
    made = f"L(1, I(0)), OI(({tensors[0]})->tensor.dtype), NONE, OI(CPU), NONE, NONE"
    make = f'DO(call, "aten::empty", "memory_format", ARGS(6, {made}), GETS(1, GET({out})));'
    return [
        "{",
        f"    REQUIRE_FLOATS({len(tensors)}, {', '.join(tensors)});",
        *([f"    {make}"] if is_out else []),
        f"    HANDLES({len(tensors)}, {', '.join(tensors)});",
        f"    void* out = {f'({out})->handle' if is_out else 'NULL'};",
        f"    int32_t (*function)({parameters}) = ctk->host->function(ctk, {name});",
        f"    int failed = function == NULL || function({', '.join(passed)});",
        "    RELEASE();",
        f"    if (failed) return function == NULL ? 1 : ctk->host->refused(ctk, {name});",
        f"    DO(refresh, {out});" if is_out else f"    DO(adopt, {out}, out);",
        "}",
    ]


def has_scalar(parameter: Parameter, value: Argument) -> bool:
    """Return whether an argument has numbers that may be of either type."""
    is_empty = value is None or (isinstance(value, (list, tuple)) and not value)
    return "number" in parameter.type and not is_empty


def _function(operator: Any, types: list[str]) -> tuple[str, bool]:
    """Return the C function of an operator, and whether it takes the tensor to write to."""
    name, overload = c_shim.name_and_overload_of(operator)
    plain = f"aoti_torch_cpu_{name.partition('::')[2]}" + (f"_{overload}" if overload else "")
    known = c_shim.cpu_functions()
    if known.get(plain) == (*types, _RESULT):
        return plain, False
    if known.get(f"{plain}_out") == ("AtenTensorHandle", *types):
        return f"{plain}_out", True
    raise NotInC(f"the C functions of torch do not take the numbers of {name}")


def _number(parameter: Parameter, value: Argument, find: Find) -> str:
    kind = "float" if parameter.type in ("number", "float") else "int"
    return number_text(value, find, kind)


def _plain(types: Sequence[str | None]) -> list[str]:
    return ["void*" if each == "AtenTensorHandle" else str(each) for each in types]
