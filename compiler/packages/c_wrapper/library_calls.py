"""Calls of torch's operators in the body of a function, and the variables of their results.

The dispatcher's C function does not take `Scalar`s. If torch has a C function for such an operator,
or for its `out` form, it is called:

    aten.addmm(b, x, w, beta=1, alpha=2)    aoti_torch_cpu_addmm_out(out, b, x, w, 1.0, 2.0)

It takes each `Scalar` as a float64, which is exact for tensors of floats: other calls are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ctk.compiler.packages.c_wrapper.body import Body
from ctk.compiler.packages.c_wrapper.c_literals import string_text
from ctk.compiler.packages.c_wrapper.entries import NotInC
from ctk.compiler.packages.c_wrapper.operator_calls import (
    argument_text,
    number_text,
    operator_of,
    tensor_text,
    values_of,
)
from ctk.compiler.packages.c_wrapper.variables import Find, Items, Nothing, Number, Tensor
from ctk.compiler.runtime.steps import Argument, Call
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


def print_call(body: Body, call: Call) -> None:
    """Print the call of an operator.

    Raises:
        NotInC: Its arguments or results cannot be passed from C.
    """
    target = operator_of(call)
    given = values_of(call, target)
    try:
        if any(_has_scalar(parameter, value) for parameter, value in given):
            body.lines += _scalar_lines(target, given, body.find, body.new(call.name))
        else:
            _print_dispatched(body, call, target, given)
    except NotInC as error:
        raise NotInC(f"{call.name} calls {target}: {error}") from error


def _print_dispatched(
    body: Body, call: Call, target: Any, given: Sequence[tuple[Any, Argument]]
) -> None:
    args = [argument_text(parameter, value, body.find) for parameter, value in given]
    name, overload = map(string_text, c_shim.name_and_overload_of(target))
    types = operators.results_of(target)
    passed = f"ARGS({', '.join([str(len(args)), *(args or ['NONE'])])})"
    start = f"ctk->host->call(ctk, {name}, {overload}, {passed}"
    if types == ("List[Tensor]",):
        _print_list(body, call, start)
        return
    results = _results(body, call, types)
    gets = f"GETS({', '.join([str(len(results)), *(results or ['{0}'])])})"
    body.lines.append(f"if ({start}, {gets})) return 1;")
    _print_twins(body, call)


def _results(body: Body, call: Call, types: Sequence[str]) -> list[str]:
    if len(types) == 1:
        return [_result(body, types[0], call.name)]
    body.places[call.name] = Items(len(types)) if types else Nothing()
    names = [body.picked.get((call.name, number), [""])[0] for number in range(len(types))]
    return [_result(body, kind, name) for kind, name in zip(types, names, strict=True)]


def _result(body: Body, kind: str, name: str) -> str:
    if kind == "Tensor":
        return f"GET({body.new(name) if name else 'NULL'})"
    if kind in ("int", "SymInt", "bool"):
        return f"GET_INT(&{body.variable(name, None)})"
    if kind == "float":
        return f"GET_FLOAT(&{body.variable(name, None, 'float')})"
    raise NotInC(f"C cannot take a result of the type {kind}")


def _print_twins(body: Body, call: Call) -> None:
    """Print further names of a part that is picked more than once."""
    for (source, _), (first, *others) in body.picked.items():
        if source != call.name:
            continue
        place = body.places[first]
        for other in others:
            if isinstance(place, Tensor):
                body.lines.append(f"SHARE({body.new(other)}, {place.text});")
            elif isinstance(place, Number):
                body.places[other] = place


def _print_list(body: Body, call: Call, start: str) -> None:
    """Print a call whose result is a list: into an array, of which the graph picks parts.

    The graph does not hold the length of the list, so only the parts up to the last picked one are
    taken.
    """
    count = max((at for source, at in body.picked if source == call.name), default=-1) + 1
    body.places[call.name] = Items(count)
    kept = [
        f"if (!failed) SHARE({body.new(name)}, &items[{at}]);"
        for (source, at), names in body.picked.items()
        if source == call.name
        for name in names
    ]
    inside = (
        f"ctk_value items[{max(count, 1)}] = {{{{{{0}}}}}};",
        f"int failed = {start}, GETS(1, GET_LIST(items, {count})));",
        *kept,
        f"for (int i = 0; i < {count}; ++i) DROP(&items[i]);",
        "if (failed) return 1;",
    )
    body.lines += ["{", *(f"    {line}" for line in inside), "}"]


def _scalar_lines(
    operator: Any, given: Sequence[tuple[Parameter, Argument]], find: Find, out: str
) -> list[str]:
    """Return the lines that call an operator through a C function of its own."""
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


def _has_scalar(parameter: Parameter, value: Argument) -> bool:
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
