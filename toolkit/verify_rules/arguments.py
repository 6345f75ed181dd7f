"""Draws with other calls than those of a draw that was accepted: other arguments, fewer calls.

    sum(x, [0])     -> sum(x, [0], True), sum(x, [0], dtype=float64), ...
    add(x, y)       -> add(x, y, alpha=2), add(y, x), add(x, x)
    sum(x, [0, 1])  -> sum(x, [1, 0]), sum(x, [-2, 1]), sum(x, [0])

A rule that looks at some arguments of a call is wrong about the others: each that the schema has is
given in turn, as the schema orders them. A large program that happened to fire is taken apart, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

from ctk.compiler.torch_compat.fx import arguments, operators
from ctk.toolkit.verify_rules.drawing import constants_for
from ctk.toolkit.verify_rules.draws import Constant, Draw, Operand, SameAs
from ctk.toolkit.verify_rules.program import Call, Program, Ref, Var, leaves, mapped
from ctk.toolkit.verify_rules.schemas import Role, arguments_of

UNDRAWN = ("layout", "device", "pin_memory", "non_blocking", "generator", "out")


def with_other_arguments(random: Random, draw: Draw) -> Iterator[Draw]:
    """Yield draws with an argument more, or less, or tensors swapped, the same, or apart."""
    for number, call in enumerate(draw.program.calls):
        if operators.declared_by(call.target) is not None:
            yield from _added(random, draw, number)
        roles = arguments_of(call.target)
        if 1 < len(call.args) <= len(roles) and not roles[len(call.args) - 1].required:
            yield _with_call(draw, number, replace(call, args=call.args[:-1]))
        yield from _rearranged(draw, number)
    yield from _apart(draw)


def _added(random: Random, draw: Draw, number: int) -> Iterator[Draw]:
    call = draw.program.calls[number]
    roles = arguments_of(call.target)
    positional = [each for each in roles if not each.keyword]
    for role in roles:
        index = positional.index(role) if role in positional else None
        is_given = role.name in call.kwargs if index is None else index < len(call.args)
        if is_given or role.is_tensor or role.name in UNDRAWN:
            continue
        name = f"arg_{number}_{role.name}"
        if index is None:
            other = replace(call, kwargs={**call.kwargs, role.name: Var(name)})
        else:
            between = _defaults(call.target)[len(call.args) : index]
            other = replace(call, args=(*call.args, *between, Var(name)))
        default = _defaults(call.target)[roles.index(role)]
        blank = _with_call(draw, number, other, {name: Constant(default)})
        for value in _different(random, blank, name, default):
            yield replace(blank, bound={**blank.bound, name: Constant(value)})


def _different(random: Random, draw: Draw, name: str, default: object) -> list[object]:
    """Return a few values for an argument that are not its default."""
    known = {(type(each), repr(each)): each for each in constants_for(random, draw, name)}
    known.pop((type(default), repr(default)), None)
    found = list(known.values())
    return found[:2] + random.sample(found[2:], min(len(found[2:]), 4))


def _defaults(target: object) -> Sequence[object]:
    return arguments.defaults_of(target)


def _rearranged(draw: Draw, number: int) -> Iterator[Draw]:
    """Yield a draw with two tensors of a call swapped, and with the first in both places."""
    call = draw.program.calls[number]
    roles: list[Role] = [each for each in arguments_of(call.target) if not each.keyword]
    tensors = [
        index
        for index, (role, given) in enumerate(zip(roles, call.args, strict=False))
        if role.is_tensor and isinstance(given, (Var, Ref))
    ]
    for one, other in pairwise(tensors):
        args = list(call.args)
        args[one], args[other] = args[other], args[one]
        yield _with_call(draw, number, replace(call, args=tuple(args)))
        args[other] = args[one] = call.args[one]
        yield _with_call(draw, number, replace(call, args=tuple(args)))


def _apart(draw: Draw) -> Iterator[Draw]:
    """Yield draws in which a variable that is used again is another one.

    1. its second use in a call, in all of the calls; 2. each use by itself.
    """
    for name, operand in draw.tensors().items():
        other = f"{name}_2"
        if other in draw.bound:
            continue
        bound = {**draw.bound, other: replace(operand, values=(*operand.values[::-1], 2, "nan"))}
        for calls in _renamed(draw.program.calls, Var(name), Var(other)):
            yield replace(draw, program=replace(draw.program, calls=calls), bound=bound)


def _renamed(calls: tuple[Call, ...], old: Var, new: Var) -> Iterator[tuple[Call, ...]]:
    places = [
        (number, index)
        for number, call in enumerate(calls)
        for index, each in enumerate(call.args)
        if each == old
    ]
    second = [place for place in places if sum(each[0] == place[0] for each in places) > 1]
    second = [place for before, place in pairwise(second) if before[0] == place[0]]
    alone = [[place] for place in places] if len(places) > 1 else []
    for chosen in (second, *alone) if second else alone:
        yield tuple(
            replace(
                call,
                args=tuple(
                    new if (number, index) in chosen else each
                    for index, each in enumerate(call.args)
                ),
            )
            for number, call in enumerate(calls)
        )


def with_fewer_calls(draw: Draw) -> Iterator[Draw]:
    """Yield draws without one call that no other reads; what it read is a result."""
    calls = draw.program.calls
    refs = [{each.number for each in _refs(call)} for call in calls]
    read = set[int]().union(*refs)
    for number in range(len(calls) if len(calls) > 1 else 0):
        if number in read:
            continue
        kept = [at for at in range(len(calls)) if at != number]
        still = set[int]().union(*(refs[at] for at in kept))
        renumbered = {at: place for place, at in enumerate(kept)}
        others = tuple(_with_numbers(calls[at], renumbered) for at in kept)
        results = tuple(renumbered[at] for at in kept if at not in still)
        program = replace(draw.program, calls=others, results=results)
        yield replace(draw, program=program, bound=_read(draw.bound, program), neighbours=())


def _refs(call: Call) -> Iterator[Ref]:
    for argument in call.arguments:
        yield from (each for each in leaves(argument) if isinstance(each, Ref))


def _with_numbers(call: Call, numbers: Mapping[int, int]) -> Call:
    def changed(part: object) -> object:
        return Ref(numbers[part.number]) if isinstance(part, Ref) else part

    args = tuple(mapped(each, changed) for each in call.args)
    return replace(call, args=args, kwargs={k: mapped(v, changed) for k, v in call.kwargs.items()})


def _with_call(
    draw: Draw, number: int, call: Call, bound: dict[str, Operand] | None = None
) -> Draw:
    """Return a draw with another call; variables that nothing reads any longer are dropped."""
    program = draw.program
    calls = (*program.calls[:number], call, *program.calls[number + 1 :])
    other = replace(program, calls=calls)
    known = {**draw.bound, **(bound or {})}
    return replace(draw, program=other, bound=_read(known, other))


def _read(bound: Mapping[str, Operand], program: Program) -> dict[str, Operand]:
    """Return the operands that a program reads, and those that they stand for."""
    names = {*program.roles}
    names |= {each.name for k, each in bound.items() if k in names and isinstance(each, SameAs)}
    return {name: each for name, each in bound.items() if name in names}


def other_lists(value: tuple[int, ...], rank: int) -> Iterator[tuple[int, ...]]:
    """Yield lists of dimensions near one: turned round, from the end, without one."""
    for order in (value, value[::-1]):
        yield order
        for index, dim in enumerate(order):
            other = dim - rank if dim >= 0 else dim + rank
            yield (*order[:index], other, *order[index + 1 :])
            yield (*order[:index], -1, *order[index + 1 :])
    yield value[1:]
    yield value[:-1]
