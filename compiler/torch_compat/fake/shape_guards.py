"""Guards on symbolic sizes as JSON: the assumptions of a compile, checked for other inputs.

A compile may depend on some sizes; torch then records a guard (`s0 > 8`) in the ShapeEnv, and
Dynamo recompiles if it fails. A stored compile needs the same checks: `fits` with the present
sizes, then `replay`, which records the guards in the present ShapeEnv.

    s0 > 8 and Mod(s0, 4) == 0, s0 the first symbol
        -> [[">", ["symbol", 0], 8], ["==", ["Mod", ["symbol", 0], 4], 0]]

Symbols have numbers, in the order in which the inputs name them first. An expression is a tree of
a few known functions; nothing of it is ever executed as Python.

Source: torch's own cache (`ShapeEnv.produce_guards_expression`), which stores Python and evaluates
it; a guard on a symbol that the inputs do not give is left out there, and refused here.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.records import Json, shown
from ctk.compiler.torch_compat.aot.aot_data import NoDataForm
from ctk.compiler.torch_compat.fake import fake_tensors as fake

_RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _sum(*values: Any) -> Any:
    return functools.reduce(operator.add, values)


def _product(*values: Any) -> Any:
    return functools.reduce(operator.mul, values)


def _modular_index(base: Any, divisor: Any, modulus: Any) -> Any:
    return (base // divisor) % modulus


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **_RELATIONS,
    "Add": _sum,
    "Mul": _product,
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "ModularIndexing": _modular_index,
    "Max": lambda *values: functools.reduce(torch.sym_max, values),
    "Min": lambda *values: functools.reduce(torch.sym_min, values),
    "ToFloat": torch.sym_float,
    "And": lambda *values: functools.reduce(operator.and_, values),
    "Or": lambda *values: functools.reduce(operator.or_, values),
    "Not": torch.sym_not,
}


def sizes_of(value: object) -> Iterator[Any]:
    """Yield the symbolic numbers that an input brings: itself, its sizes, those of its base."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield value
    elif isinstance(value, torch.Tensor):
        yield from (each for each in layout_of(value) if isinstance(each, torch.SymInt))
        yield from sizes_of(value._base)


def layout_of(value: torch.Tensor) -> tuple[Any, ...]:
    """Return sizes, strides and offset of a tensor; sizes only if it has no strides."""
    if value.layout != torch.strided:
        return tuple(value.shape)
    return (*value.shape, *value.stride(), value.storage_offset())


def symbols_of(inputs: Sequence[object]) -> dict[str, Any]:
    """Return the symbols of inputs in order, with values; None if only in longer expressions."""
    found: dict[str, Any] = {}
    for value in (size for one in inputs for size in sizes_of(one)):
        expression = value.node.expr
        if expression.is_Symbol:
            known = found.get(str(expression))
            found[str(expression)] = value if known is None else known
        else:
            names = sorted(str(symbol) for symbol in expression.free_symbols)
            found.update({name: None for name in names if name not in found})
    return found


def known_names(inputs: Sequence[object]) -> frozenset[str]:
    """Return the names of all symbols of the compile that these inputs belong to."""
    mode = fake.mode_of(inputs)
    env = None if mode is None else mode.shape_env
    return frozenset() if env is None else frozenset(map(str, env.var_to_range))


def guards_of(symbols: Mapping[str, Any]) -> Json:
    """Return all guards that torch knows on symbols, after a compile.

    Args:
        symbols: The result of `symbols_of` before it: the compile may have replaced symbols.

    Raises:
        NoDataForm: A guard has another symbol or an unknown function.
    """
    env = next((symbol.node.shape_env for symbol in symbols.values() if symbol is not None), None)
    if env is None:
        return []
    numbers = {name: place for place, name in enumerate(symbols)}
    found: dict[str, Json] = {}
    for guard in env.guards:
        expression = _substitute(guard.expr, numbers, env)
        if not {str(symbol) for symbol in expression.free_symbols}.isdisjoint(numbers):
            found.setdefault(str(expression), encode_expression(expression, numbers))
    return list(found.values())


def _substitute(expression: Any, numbers: Mapping[str, int], env: Any) -> Any:
    """Return a guard with torch's replacements of other symbols, such as a number."""
    others = [symbol for symbol in expression.free_symbols if str(symbol) not in numbers]
    return expression.xreplace({other: env.replace(other) for other in others})


def encode_expression(expression: Any, numbers: Mapping[str, int]) -> Json:
    """Return a sympy expression as a tree; symbols by their numbers.

    Raises:
        NoDataForm: It has a symbol without a number, or a function that is not known here.
    """
    if expression.is_Symbol:
        if str(expression) not in numbers:
            raise NoDataForm(f"a guard on {expression}, which is not a size of an input")
        return ["symbol", numbers[str(expression)]]
    if expression.is_Integer:
        return int(expression)
    if expression in (True, False):
        return bool(expression)
    if expression.is_Float:
        return ["float", float(expression).hex()]
    name = getattr(expression, "rel_op", None) or type(expression).__name__
    if name not in _FUNCTIONS:
        raise NoDataForm(f"a guard with {name}: {expression}")
    return [name, *(encode_expression(arg, numbers) for arg in expression.args)]


def fits(guards: Json, inputs: Sequence[object]) -> bool:
    """Return whether guards hold for the example sizes of these inputs; notes nothing.

    Raises:
        NoDataForm: These are no guards.
    """
    values = symbols_of(inputs).values()
    hints = [None if value is None else fake.symbol_and_hint(value)[1] for value in values]
    return all(_holds(guard, hints) for guard in guards)


def replay(guards: Json, inputs: Sequence[object]) -> bool:
    """Note guards in the ShapeEnv of these inputs, as the compile did; whether all hold.

    Raises:
        NoDataForm: These are no guards.
    """
    values = list(symbols_of(inputs).values())
    return all(_holds(guard, values) for guard in guards)


def _holds(guard: Json, values: Sequence[Any]) -> bool:
    value = _evaluate(guard, values)
    return False if value is None else bool(value)


def _evaluate(tree: Json, values: Sequence[Any]) -> Any:
    """Return the value of a tree; None if a symbol has none."""
    if isinstance(tree, int):  # or a bool
        return tree
    try:
        name, *arguments = tree
        if name == "symbol":
            return values[arguments[0]]
        if name == "float":
            return float.fromhex(arguments[0])
        function = _FUNCTIONS[name]
    except (LookupError, TypeError, ValueError) as error:
        raise NoDataForm(f"not a guard: {shown(tree)}") from error
    operands = [_evaluate(argument, values) for argument in arguments]
    return None if any(operand is None for operand in operands) else function(*operands)
