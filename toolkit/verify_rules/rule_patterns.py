"""Convert the matcher's patterns to programs: sizes and wildcards become variables."""

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast

from ctk.compiler.fx.types import tensor_of
from ctk.compiler.patterns.expression import Dim, Op, Pattern, Size, Var, ops_of, roots_of
from ctk.compiler.patterns.matcher import AnyRule
from ctk.compiler.patterns.replacement import Replacement
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments, operators, tracing
from ctk.toolkit.verify_rules.draws import CallResult, Draw, DrawCall, DrawProgram
from ctk.toolkit.verify_rules.examples import read_graph
from ctk.toolkit.verify_rules.operands import TensorDraw, Variable

ORDERS = 8
"""The largest number of orders of swapped operands to try."""


def programs_of(pattern: Pattern, hints: tuple[object, ...] = ()) -> tuple[DrawProgram, ...]:
    """Return a program for each order of a pattern's operands."""
    parts = list(ops_of(*roots_of(pattern)))
    swapped = [part for part in parts if part.swaps[0] != part.swaps[1]]
    choices = itertools.product(*((False, True) for _ in swapped))
    return tuple(
        _program(pattern, frozenset(itertools.compress(swapped, choice)), hints)
        for choice in itertools.islice(choices, ORDERS)
    )


def _program(pattern: Pattern, swapped: frozenset[Op], hints: tuple[object, ...]) -> DrawProgram:
    numbers: dict[Op, int] = {}
    calls: list[DrawCall] = []
    for part in ops_of(*roots_of(pattern)):
        operands = [
            _part(each, numbers, f"any_{len(calls)}_{at}") for at, each in enumerate(part.operands)
        ]
        if part in swapped:
            a, b = part.swaps
            operands[a], operands[b] = operands[b], operands[a]
        numbers[part] = len(calls)
        calls.append(_call(part.target, operands))
    return DrawProgram(tuple(calls), tuple(numbers[root] for root in roots_of(pattern)), hints)


def _part(part: object, numbers: Mapping[Op, int], name: str) -> object:
    match part:
        case Op():
            return CallResult(numbers[part])
        case Var():
            return Variable(part.name)
        case Size():
            return Variable(name)
        case Dim():
            return part.index
        case list() | tuple():
            parts = cast("list[object]", part)
            return [_part(each, numbers, f"{name}_{at}") for at, each in enumerate(parts)]
        case _:
            return part


def _call(target: object, operands: list[object]) -> DrawCall:
    """Return a call without the arguments that equal their defaults."""
    if operators.kind_of(target) != "overload":
        return DrawCall(target, tuple(operands))
    given = list(zip(arguments.declared_parameters(target), operands, strict=True))
    args = [operand for each, operand in given if each.is_positional]
    defaults = arguments.defaults_of(target)
    while args and _is_default(args[-1], defaults[len(args) - 1]):
        args.pop()
    kwargs = {
        each.name: operand
        for (each, operand), default in zip(given, defaults, strict=True)
        if not (each.is_positional or _is_default(operand, default))
    }
    return DrawCall(target, tuple(args), kwargs)


def _is_default(operand: object, default: object) -> bool:
    return type(operand) is type(default) and operand == default


def seeds_of(rule: AnyRule) -> Iterator[Draw]:
    """Yield the draw of the example inputs of a rule that was traced from a function."""
    guard = rule.guard
    replacement = guard.args[0] if isinstance(guard, partial) and guard.args else None
    if isinstance(replacement, Replacement):
        yield _trace(replacement)


def _trace(replacement: Replacement) -> Draw:
    mode = fake.new_fake_mode()
    inputs = [
        tracing.fake_like(value, mode, requires_grad=value.requires_grad)
        for value in replacement.example_inputs
    ]
    module = replacement.trace(replacement.search_fn, inputs, replacement.scalar_workaround)
    tensors = [tensor_of(node) for node in module.graph.find_nodes(op="placeholder")]
    operands = [
        TensorDraw(tensor.dtype, tuple(map(int, tensor.shape)))
        for tensor in tensors
        if tensor is not None
    ]
    return read_graph(module, operands)
