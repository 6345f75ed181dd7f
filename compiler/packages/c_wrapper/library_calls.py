"""Calls of torch's operators in the body of a function, and the variables of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ctk.compiler.packages.c_wrapper.body import Body
from ctk.compiler.packages.c_wrapper.c_literals import string_text
from ctk.compiler.packages.c_wrapper.entries import NotInC
from ctk.compiler.packages.c_wrapper.operator_calls import argument_text, operator_of, values_of
from ctk.compiler.packages.c_wrapper.scalars import call_lines, has_scalar
from ctk.compiler.packages.c_wrapper.variables import Items, Nothing, Number, Tensor
from ctk.compiler.runtime.steps import Argument, Call
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.process import c_shim


def print_call(body: Body, call: Call) -> None:
    """Print the call of an operator.

    Raises:
        NotInC: Its arguments or results cannot be passed from C.
    """
    target = operator_of(call)
    given = values_of(call, target)
    try:
        if any(has_scalar(parameter, value) for parameter, value in given):
            body.lines += call_lines(target, given, body.find, body.new(call.name))
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
    is_list = types == ("List[Tensor]",)
    results = [_list(body, call)] if is_list else _results(body, call, types)
    passed = f"ARGS({', '.join([str(len(args)), *(args or ['NONE'])])})"
    gets = f"GETS({', '.join([str(len(results)), *(results or ['{0}'])])})"
    text = f"ctk->host->call(ctk, {name}, {overload}, {passed}, {gets})"
    if is_list:
        _print_list(body, call, text)
    else:
        body.lines.append(f"if ({text}) return 1;")
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


def _count(body: Body, call: Call) -> int:
    """Return how many parts of a list are picked: the graph does not hold its length."""
    return max((at for source, at in body.picked if source == call.name), default=-1) + 1


def _list(body: Body, call: Call) -> str:
    count = _count(body, call)
    body.places[call.name] = Items(count)
    return f"GET_LIST(items, {count})"


def _print_list(body: Body, call: Call, text: str) -> None:
    """Print a call whose result is a list: into an array, of which the graph picks parts."""
    count = _count(body, call)
    kept = [
        f"if (!failed) SHARE({body.new(name)}, &items[{at}]);"
        for (source, at), names in body.picked.items()
        if source == call.name
        for name in names
    ]
    inside = (
        f"ctk_value items[{max(count, 1)}] = {{{{{{0}}}}}};",
        f"int failed = {text};",
        *kept,
        f"for (int i = 0; i < {count}; ++i) DROP(&items[i]);",
        "if (failed) return 1;",
    )
    body.lines += ["{", *(f"    {line}" for line in inside), "}"]
