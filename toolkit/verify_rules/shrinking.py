"""Shrink a counter-example: the same kind of difference from the smallest draw."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ctk.toolkit.search.descents import descend
from ctk.toolkit.search.questions import run_search
from ctk.toolkit.verify_rules.drawing import with_size
from ctk.toolkit.verify_rules.draws import Draw
from ctk.toolkit.verify_rules.operands import (
    DTYPES,
    LAYOUTS,
    SIMPLEST,
    Constant,
    TensorDraw,
    Variable,
)

MAX_TRIALS = 2000


def shrink(draw: Draw, differs: Callable[[Draw], bool]) -> Draw:
    """Return the smallest draw found that still differs."""
    trials = 0

    def smaller(draw: Draw) -> Iterator[Draw]:
        nonlocal trials
        for simpler in simpler_draws(draw) if trials < MAX_TRIALS else ():
            if size_of(simpler) < size_of(draw):
                trials += 1
                yield simpler

    return run_search(descend(draw, smaller), differs)


def size_of(draw: Draw) -> tuple[object, ...]:
    """Return the size of a draw; a smaller tuple is a simpler draw."""
    tensors = draw.tensors().values()
    same = sum(isinstance(each, Variable) for each in draw.bound.values())
    return (
        len(draw.neighbours),
        draw.dynamic,
        draw.grown,
        same,
        sum(len(tensor.shape) for tensor in tensors),
        sum(size + (size == 0) for tensor in tensors for size in tensor.shape),
        sum(tensor.place != "input" for tensor in tensors),
        sum(LAYOUTS.index(tensor.layout) for tensor in tensors),
        sum(DTYPES.index(tensor.dtype) for tensor in tensors),
        sum(len(tensor.values) for tensor in tensors),
        sum(SIMPLEST.index(value) for tensor in tensors for value in tensor.values),
        sum(_weight(each) for each in draw.bound.values()),
        not draw.returned,
    )


def _weight(operand: object) -> float:
    value = operand.value if isinstance(operand, Constant) else None
    if isinstance(value, tuple):
        return sum(_number_weight(each) for each in value) + len(value)
    return _number_weight(value)


def _number_weight(value: object) -> float:
    if isinstance(value, bool) or value is None:
        return 0
    if not isinstance(value, int | float):
        return 1
    is_odd = value != value or value in (float("inf"), float("-inf"))
    return 1000 if is_odd else abs(value) + (value < 0) + isinstance(value, float)


def simpler_draws(draw: Draw) -> Iterator[Draw]:
    """Yield draws that are simpler in one place, large cuts first."""
    for index in range(len(draw.neighbours)):
        yield replace(draw, neighbours=draw.neighbours[:index] + draw.neighbours[index + 1 :])
    if draw.dynamic:
        yield replace(draw, dynamic=False, grown=0)
        yield replace(draw, grown=draw.grown - 1) if draw.grown else draw
    yield from _apart(draw)
    yield from _fewer_dims(draw)
    yield from _smaller_sizes(draw)
    for name, each in draw.tensors().items():
        for changed in _simpler(each):
            yield draw.bind({name: changed})
    for dtype in DTYPES:
        yield draw.with_tensors(dtype=dtype)
    yield from _simpler_constants(draw)
    if not draw.returned:
        yield replace(draw, returned=True)


def _apart(draw: Draw) -> Iterator[Draw]:
    """Give a repeated operand a tensor of its own."""
    tensors = draw.tensors()
    for name, operand in draw.bound.items():
        if isinstance(operand, Variable) and operand.name in tensors:
            yield draw.bind({name: tensors[operand.name]})


def _fewer_dims(draw: Draw) -> Iterator[Draw]:
    tensors = draw.tensors()
    most = max((len(tensor.shape) for tensor in tensors.values()), default=0)
    for index in range(most):
        cut = draw.bind({k: replace(v, shape=_without(v.shape, index)) for k, v in tensors.items()})
        yield cut
        lists = {
            name: Constant(_without(each.value, index))
            for name, each in draw.bound.items()
            if isinstance(each, Constant) and isinstance(each.value, tuple)
        }
        yield cut.bind(lists)
    for name, each in tensors.items():
        for index in range(len(each.shape)):
            yield draw.bind({name: replace(each, shape=_without(each.shape, index))})


def _without(shape: tuple[int, ...], index: int) -> tuple[int, ...]:
    return shape[:index] + shape[index + 1 :]


def _smaller_sizes(draw: Draw) -> Iterator[Draw]:
    sizes = sorted(
        {size for tensor in draw.tensors().values() for size in tensor.shape}, reverse=True
    )
    for old in sizes:
        for new in (1, 2, 3):
            if new < old or old == 0:
                yield with_size(draw, old, new)
    for name, each in draw.tensors().items():
        for index, old in enumerate(each.shape):
            for new in (1, 2):
                shape = (*each.shape[:index], new, *each.shape[index + 1 :])
                if new < old or old == 0:
                    yield draw.bind({name: replace(each, shape=shape)})


def _simpler(tensor: TensorDraw) -> Iterator[TensorDraw]:
    if tensor.place != "input":
        yield replace(tensor, place="input")
    for layout in LAYOUTS[: LAYOUTS.index(tensor.layout)]:
        yield replace(tensor, layout=layout)
    for dtype in DTYPES[: DTYPES.index(tensor.dtype)]:
        yield replace(tensor, dtype=dtype)
    for value in sorted(set(tensor.values), key=SIMPLEST.index):
        yield replace(tensor, values=(value,))
    for index in range(len(tensor.values) if len(tensor.values) > 1 else 0):
        yield replace(tensor, values=tensor.values[:index] + tensor.values[index + 1 :])
    for index, value in enumerate(tensor.values):
        for simpler in SIMPLEST[: SIMPLEST.index(value)]:
            values = (*tensor.values[:index], simpler, *tensor.values[index + 1 :])
            yield replace(tensor, values=values)


def _simpler_constants(draw: Draw) -> Iterator[Draw]:
    for name, operand in draw.bound.items():
        if isinstance(operand, Constant) and not isinstance(operand.value, tuple):
            for value in (None, False, 0, 1, -1, 2, 3):
                if type(value) is type(operand.value) or value is None:
                    yield draw.bind({name: Constant(value)})
        elif isinstance(operand, Constant):
            for value in ((), (0,), (1,), (-1,), (0, 1), (1, 0)):
                yield draw.bind({name: Constant(value)})
