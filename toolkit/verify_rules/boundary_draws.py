"""The corners around a draw that was accepted: each differs from it in one place.

Chance visits a corner late or never: a rule that is wrong for size 0 of one operand wants that
size, and all else as it was. So each corner of a few accepted draws is tried in turn:

    dtypes     all operands in each, each operand in another one
    sizes      each size of the draw 0, 1, and larger; each operand without a dimension, with size 1
    layouts    each operand in each layout, as a constant, as a view; one node for two operands
    company    each value written to, returned, and read once more, at each place
    results    returned or not; sizes as symbols, run with these sizes and with larger ones
    constants  each number, dimension and word that the argument may be
    arguments  each argument that a call does not give; tensors swapped, or the same
    calls      one less

The kinds take turns, so that few corners of a draw are some of each kind.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from random import Random
from typing import cast

from ctk.toolkit.verify_rules.arguments import (
    other_lists,
    with_fewer_calls,
    with_other_arguments,
)
from ctk.toolkit.verify_rules.drawing import (
    constants_for,
    with_dense_layouts,
    with_sizes,
    with_tensors,
)
from ctk.toolkit.verify_rules.draws import Constant, Draw, Neighbour, SameAs, TensorDraw
from ctk.toolkit.verify_rules.layouts import LAYOUTS
from ctk.toolkit.verify_rules.values import DTYPES


def corners(random: Random, draw: Draw) -> list[Draw]:
    """Return the corners around a draw: to be taken from the end."""
    plain = replace(draw, neighbours=())
    kinds = [
        _dtypes(random, plain),
        _sizes(plain),
        _operands(plain),
        _company(plain),
        _results(plain),
        _constants(random, plain),
        with_other_arguments(random, plain),
        with_fewer_calls(plain),
    ]
    turns = [random.sample(found, len(found)) for found in map(list, kinds)]
    mixed = [each for turn in zip_longest(*turns) for each in turn if each is not None]
    return mixed[::-1]


def _dtypes(random: Random, draw: Draw) -> Iterator[Draw]:
    tensors = draw.tensors()
    for dtype in DTYPES:
        yield with_tensors(draw, {k: replace(v, dtype=dtype) for k, v in tensors.items()})
    for name, each in tensors.items():
        for dtype in random.sample(DTYPES, 3):
            yield with_tensors(draw, {name: replace(each, dtype=dtype)})


def _sizes(draw: Draw) -> Iterator[Draw]:
    tensors = draw.tensors()
    for old in dict.fromkeys(size for each in tensors.values() for size in each.shape):
        for new in (0, 1, 4):
            yield with_sizes(draw, lambda size, old=old, new=new: new if size == old else size)
    for name, each in tensors.items():
        for index in range(len(each.shape)):
            head, tail = each.shape[:index], each.shape[index + 1 :]
            for shape in ((*head, 1, *tail), (*head, *tail), (*head, 0, *tail)):
                yield with_tensors(draw, {name: replace(each, shape=shape)})
        yield with_tensors(draw, {name: replace(each, shape=())})
        yield with_tensors(draw, {name: replace(each, shape=(2, *each.shape))})


def _operands(draw: Draw) -> Iterator[Draw]:
    tensors = draw.tensors()
    for name, each in tensors.items():
        for layout in LAYOUTS:
            yield with_tensors(draw, {name: replace(each, layout=layout)})
        for place in ("input", "constant", "view"):
            yield with_tensors(draw, {name: _placed(each, place)})
        for other in tensors:
            if other != name:
                yield replace(draw, bound={**draw.bound, name: SameAs(other)})
    for layout in LAYOUTS:
        yield with_tensors(draw, {k: replace(v, layout=layout) for k, v in tensors.items()})


def _placed(tensor: TensorDraw, place: str) -> TensorDraw:
    return replace(tensor, place=place)  # type: ignore[arg-type]  # one of its words


def _company(draw: Draw) -> Iterator[Draw]:
    count = len(draw.program.calls)
    for of in (*draw.tensors(), *range(count)):
        first = of + 1 if isinstance(of, int) else 0
        for at in range(first, count + 1):
            written = replace(draw, neighbours=(Neighbour("write", of, at),))
            yield written
            if isinstance(of, str):
                yield with_tensors(written, {of: _placed(draw.tensors()[of], "view")})
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
                yield replace(draw, bound={**draw.bound, name: Constant(value)})
