"""Convert the matcher's patterns to programs: sizes and wildcards become variables."""

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast

from ctk.compiler.fx.types import tensor_of
from ctk.compiler.patterns.expression import (
    Dim,
    ListOf,
    Op,
    Pattern,
    Repeated,
    Reshape,
    Size,
    Var,
    ops_of,
    roots_of,
)
from ctk.compiler.patterns.matcher import AnyRule
from ctk.compiler.patterns.replacement import Replacement
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments, operators, tracing
from ctk.toolkit.verify_rules.draws import CallResult, Draw, DrawCall, DrawProgram
from ctk.toolkit.verify_rules.examples import read_graph
from ctk.toolkit.verify_rules.operands import TensorDraw, Variable

ORDERS = 8
"""The largest number of orders of swapped operands to try."""


ITEMS = 2
"""The length of the lists that are drawn for a `ListOf`, and of the uses for a `Repeated`."""


def programs_of(pattern: Pattern, hints: tuple[object, ...] = ()) -> tuple[DrawProgram, ...]:
    """Return a program for each order of a pattern's operands, with each of its targets."""
    return tuple(
        program
        for plain in _without_lists(pattern)
        if all(callable(p.target) and not isinstance(p.target, type) for p in ops_of(*plain))
        for program in _orders(plain, hints)
    )


def _without_lists(pattern: Pattern) -> Iterator[tuple[Op, ...]]:
    """Yield a pattern with lists of a known length, once for each target of its calls."""
    parts = list(ops_of(*roots_of(pattern)))
    for choice in range(max(len(part.targets) for part in parts)):
        copies = _Copies(choice)
        if isinstance(pattern, Repeated):
            items = copies.items(ListOf(pattern.part, (pattern.of,)))
            yield tuple(item for item in items if isinstance(item, Op))
        else:
            yield tuple(copies.op(root) for root in roots_of(pattern))


class _Copies:
    """Copies of the parts of a pattern; a part of a list has a copy for each item."""

    def __init__(self, choice: int, item: str = "") -> None:
        self.choice = choice
        self.item = item
        self.same: frozenset[str] = frozenset()
        self.made: dict[Op, Op] = {}

    def op(self, part: Op) -> Op:
        if part not in self.made:
            target = part.targets[min(self.choice, len(part.targets) - 1)]
            kwargs = {name: self.copy(each) for name, each in part.kwargs.items()}
            args = tuple(self.copy(each) for each in part.args)
            kind = Reshape if isinstance(part, Reshape) else Op
            self.made[part] = kind(target, args, kwargs)
        return self.made[part]

    def copy(self, part: object) -> object:
        match part:
            case Op():
                return self.op(part)
            case ListOf():
                return self.items(part)
            case Var() if self.item and part.name not in self.same:
                return Var(f"{part.name}_{self.item}")
            case list() | tuple():
                return [self.copy(each) for each in cast("list[object]", part)]
            case _:
                return part

    def items(self, part: ListOf) -> list[object]:
        """Return the items of a list, which share the parts that are the same in all."""
        shared = [self.op(each) for each in part.same if isinstance(each, Op)]
        names = {each.name for each in part.same if isinstance(each, Var)}
        found: list[object] = []
        for number in range(ITEMS):
            item = _Copies(self.choice, f"{self.item}{number}")
            item.same = frozenset(names)
            item.made = {old: new for old, new in self.made.items() if new in {*ops_of(*shared)}}
            found.append(item.copy(part.part))
        return found


def _orders(pattern: tuple[Op, ...], hints: tuple[object, ...]) -> tuple[DrawProgram, ...]:
    parts = list(ops_of(*pattern))
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
