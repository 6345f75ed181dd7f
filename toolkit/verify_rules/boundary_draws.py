"""Boundary draws of an accepted draw: each differs from it in one place.

A rule that is wrong for size 0 of one operand fails only with that size and everything else
unchanged; random draws reach that late or never. The kinds alternate:

    dtypes     all operands in each, each operand in another one
    sizes      each size of the draw 0, 1, and larger; each operand without a dimension, with size 1
    layouts    each operand in each layout, as a constant, as a view; one node for two operands
    neighbours each value written to, returned, and read once more, at each position
    results    returned or not; sizes as symbols, run with these sizes and with larger ones
    constants  each number, dimension and word that the argument accepts
    arguments  each argument that a call does not give; tensors swapped, or the same
    calls      one less
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, zip_longest
from random import Random
from typing import cast

from ctk.compiler.torch_compat.fx import arguments, operators
from ctk.compiler.torch_compat.fx.graphs import tree_leaves, tree_map
from ctk.toolkit.verify_rules.drawing import constants_for, with_dense_layouts, with_size
from ctk.toolkit.verify_rules.draws import CallResult, Draw, DrawCall, DrawProgram, Neighbour
from ctk.toolkit.verify_rules.operands import (
    DTYPES,
    LAYOUTS,
    PLACES,
    Constant,
    Operand,
    Variable,
)
from ctk.toolkit.verify_rules.schemas import ArgumentRole, arguments_of


def list_boundary_draws(random: Random, draw: Draw) -> list[Draw]:
    """Return the boundaries of a draw, in the reverse order of trial."""
    plain = replace(draw, neighbours=())
    kinds = [
        _dtypes(random, plain),
        _sizes(plain),
        _operands(plain),
        _neighbours(plain),
        _results(plain),
        _constants(random, plain),
        with_other_arguments(random, plain),
        with_fewer_calls(plain),
    ]
    turns = [random.sample(draws, len(draws)) for draws in map(list, kinds)]
    mixed = [each for turn in zip_longest(*turns) for each in turn if each is not None]
    return mixed[::-1]


def _dtypes(random: Random, draw: Draw) -> Iterator[Draw]:
    tensors = draw.tensors()
    for dtype in DTYPES:
        yield draw.with_tensors(dtype=dtype)
    for name, each in tensors.items():
        for dtype in random.sample(DTYPES, 3):
            yield draw.bind({name: replace(each, dtype=dtype)})


def _sizes(draw: Draw) -> Iterator[Draw]:
    tensors = draw.tensors()
    for old in dict.fromkeys(size for tensor in tensors.values() for size in tensor.shape):
        for new in (0, 1, 4):
            yield with_size(draw, old, new)
    for name, each in tensors.items():
        for index in range(len(each.shape)):
            head, tail = each.shape[:index], each.shape[index + 1 :]
            for shape in ((*head, 1, *tail), (*head, *tail), (*head, 0, *tail)):
                yield draw.bind({name: replace(each, shape=shape)})
        yield draw.bind({name: replace(each, shape=())})
        yield draw.bind({name: replace(each, shape=(2, *each.shape))})


def _operands(draw: Draw) -> Iterator[Draw]:
    tensors = draw.tensors()
    for name, each in tensors.items():
        for layout in LAYOUTS:
            yield draw.bind({name: replace(each, layout=layout)})
        for place in PLACES:
            yield draw.bind({name: replace(each, place=place)})
        for other in tensors:
            if other != name:
                yield draw.bind({name: Variable(other)})
    for layout in LAYOUTS:
        yield draw.with_tensors(layout=layout)


def _neighbours(draw: Draw) -> Iterator[Draw]:
    count = len(draw.program.calls)
    for of in (*draw.tensors(), *range(count)):
        first = of + 1 if isinstance(of, int) else 0
        for at in range(first, count + 1):
            written = replace(draw, neighbours=(Neighbour("write", of, at),))
            yield written
            if isinstance(of, str):
                yield written.bind({of: replace(draw.tensors()[of], place="view")})
        yield replace(draw, neighbours=(Neighbour("return", of, count),))
        yield replace(draw, neighbours=(Neighbour("use", of, count),))


def _results(draw: Draw) -> Iterator[Draw]:
    for returned in (True, False):
        yield replace(draw, returned=returned)
    dense = with_dense_layouts(draw)
    for grown in (0, 1, 2):
        yield replace(dense, dynamic=True, grown=grown)


def _constants(random: Random, draw: Draw) -> Iterator[Draw]:
    for name, each in draw.bound.items():
        if isinstance(each, Constant):
            values = constants_for(random, draw, name)
            if isinstance(each.value, tuple):
                rank = max((len(one.shape) for one in draw.tensors().values()), default=0)
                values += other_lists(cast("tuple[int, ...]", each.value), rank)
            for value in values:
                yield draw.bind({name: Constant(value)})


# --- other calls: other arguments, fewer calls ---------------------------------------------------

UNDRAWN = ("layout", "device", "pin_memory", "non_blocking", "generator", "out")


def with_other_arguments(random: Random, draw: Draw) -> Iterator[Draw]:
    """Yield draws with one argument more or less, or with tensors swapped, merged or split."""
    for number, call in enumerate(draw.program.calls):
        if operators.declared_by(call.target) is not None:
            yield from _with_argument(random, draw, number)
        roles = arguments_of(call.target)
        if 1 < len(call.args) <= len(roles) and not roles[len(call.args) - 1].required:
            yield _with_call(draw, number, replace(call, args=call.args[:-1]))
        yield from _with_tensors_moved(draw, number)
    yield from _split_operands(draw)


def _with_argument(random: Random, draw: Draw, number: int) -> Iterator[Draw]:
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
            other = replace(call, kwargs={**call.kwargs, role.name: Variable(name)})
        else:
            between = arguments.defaults_of(call.target)[len(call.args) : index]
            other = replace(call, args=(*call.args, *between, Variable(name)))
        default = arguments.defaults_of(call.target)[roles.index(role)]
        blank = _with_call(draw, number, other, {name: Constant(default)})
        for value in _other_constants(random, blank, name, default):
            yield blank.bind({name: Constant(value)})


def _other_constants(random: Random, draw: Draw, name: str, default: object) -> list[object]:
    known = {(type(each), repr(each)): each for each in constants_for(random, draw, name)}
    known.pop((type(default), repr(default)), None)
    first, rest = list(known.values())[:2], list(known.values())[2:]
    return first + random.sample(rest, min(len(rest), 4))


def _with_tensors_moved(draw: Draw, number: int) -> Iterator[Draw]:
    """Yield a draw with two tensors of a call swapped, and with the first in both places."""
    call = draw.program.calls[number]
    roles: list[ArgumentRole] = [
        argument for argument in arguments_of(call.target) if not argument.keyword
    ]
    tensors = [
        index
        for index, (role, given) in enumerate(zip(roles, call.args, strict=False))
        if role.is_tensor and isinstance(given, (Variable, CallResult))
    ]
    for one, other in pairwise(tensors):
        args = list(call.args)
        args[one], args[other] = args[other], args[one]
        yield _with_call(draw, number, replace(call, args=tuple(args)))
        args[other] = args[one] = call.args[one]
        yield _with_call(draw, number, replace(call, args=tuple(args)))


def _split_operands(draw: Draw) -> Iterator[Draw]:
    """Yield draws in which some uses of a variable read a new variable."""
    for name, operand in draw.tensors().items():
        other = f"{name}_2"
        if other in draw.bound:
            continue
        bound = {**draw.bound, other: replace(operand, values=(*operand.values[::-1], 2, "nan"))}
        for calls in _rename_uses(draw.program.calls, Variable(name), Variable(other)):
            yield replace(draw, program=replace(draw.program, calls=calls), bound=bound)


def _rename_uses(
    calls: tuple[DrawCall, ...], old: Variable, new: Variable
) -> Iterator[tuple[DrawCall, ...]]:
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
    """Yield draws without one call that no other reads; its operands become results."""
    calls = draw.program.calls
    refs = [_refs(call) for call in calls]
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


def _refs(call: DrawCall) -> set[int]:
    """Return the numbers of the calls whose results a call reads."""
    parts = tree_leaves((call.args, dict(call.kwargs)))
    return {part.number for part in parts if isinstance(part, CallResult)}


def _with_numbers(call: DrawCall, numbers: Mapping[int, int]) -> DrawCall:
    def renumber(part: object) -> object:
        return CallResult(numbers[part.number]) if isinstance(part, CallResult) else part

    return DrawCall(call.target, *tree_map(renumber, (call.args, dict(call.kwargs))))


def _with_call(
    draw: Draw, number: int, call: DrawCall, bound: dict[str, Operand] | None = None
) -> Draw:
    """Return a draw with another call; variables that become unused are dropped."""
    calls = draw.program.calls
    program = replace(draw.program, calls=(*calls[:number], call, *calls[number + 1 :]))
    return replace(draw, program=program, bound=_read({**draw.bound, **(bound or {})}, program))


def _read(bound: Mapping[str, Operand], program: DrawProgram) -> dict[str, Operand]:
    """Return the operands that a program reads, directly or through another variable."""
    names = {*program.roles}
    names |= {each.name for k, each in bound.items() if k in names and isinstance(each, Variable)}
    return {name: each for name, each in bound.items() if name in names}


def other_lists(value: tuple[int, ...], rank: int) -> Iterator[tuple[int, ...]]:
    """Yield lists of dimensions near one: reversed, counted from the end, without one."""
    for order in (value, value[::-1]):
        yield order
        for index, dim in enumerate(order):
            other = dim - rank if dim >= 0 else dim + rank
            yield (*order[:index], other, *order[index + 1 :])
            yield (*order[:index], -1, *order[index + 1 :])
    yield value[1:]
    yield value[:-1]
