"""The schedule of a compiled graph as data: the steps of one call.

    x, w, s0 = inputs
    mm = Call(aten.mm, (x, w))                      an operator of the library
    relu = Allocation(float32, (s0, 8), (8, 1))     memory that kernels fill
    Launch(0, (relu, mm), (s0,))                    kernel 0: its buffers, its sizes
    return (relu,)

It holds no generated Python: `python_code.py` prints it for this process, packages and the cache
store it as data, and `c_wrapper` prints it in C.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch

from ctk.compiler.sizes.index import Index
from ctk.compiler.sizes.size_guards import symbols_of


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of an input, a constant or an earlier step, by its name."""

    name: str


Argument: TypeAlias = Any
"""A plain value of Python or torch, a `Ref`, an `Index` of size symbols, or a list, tuple, dict or
slice of these."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the library, or of one of the functions in `helpers.py`.

    Attributes:
        function: An operator, or another function with a name in `runtime/functions.py`; any
            callable in a schedule that is not stored.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument] = field(default_factory=dict[str, Argument])


@dataclass(frozen=True, slots=True)
class Size:
    """A size symbol gets its value.

    Attributes:
        source: The value that determines it: an integer, or a tensor.
        axis: Of the tensor; None for an integer.
    """

    symbol: str
    source: str
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """New memory for kernels, or memory that is no longer needed.

    Attributes:
        strides: In elements.
        memory: Name of the tensor whose memory is reused; empty for new memory.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    device: torch.device
    memory: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel runs.

    Attributes:
        buffers: Names of tensors: first the written, then the read ones.
    """

    kernel: int
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]


Step: TypeAlias = Call | Size | Allocation | Launch


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of a call of a graph, or of a part of it.

    Attributes:
        constants: The attribute of the graph's module that is the value of a name.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    result: Argument
    constants: Mapping[str, str] = field(default_factory=dict[str, str])


def leaves(argument: Argument) -> Iterator[Any]:
    """Yield the leaves of an argument: lists, tuples, dicts and slices are opened."""
    if isinstance(argument, (list, tuple)):
        for part in cast("Sequence[Argument]", argument):
            yield from leaves(part)
    elif isinstance(argument, Mapping):
        for part in cast("Mapping[str, Argument]", argument).values():
            yield from leaves(part)
    elif isinstance(argument, slice):
        yield from leaves((argument.start, argument.stop, argument.step))
    else:
        yield argument


def map_leaves(argument: Argument, change: Callable[[Any], Argument]) -> Argument:
    """Return an argument with each of its leaves changed."""
    if isinstance(argument, (list, tuple)):
        parts = [map_leaves(part, change) for part in cast("Sequence[Argument]", argument)]
        return parts if isinstance(argument, list) else tuple(parts)
    if isinstance(argument, Mapping):
        pairs = cast("Mapping[str, Argument]", argument).items()
        return {key: map_leaves(part, change) for key, part in pairs}
    if isinstance(argument, slice):
        bounds = (argument.start, argument.stop, argument.step)
        return slice(*(map_leaves(bound, change) for bound in bounds))
    return change(argument)


def arguments(step: Step) -> Iterator[Any]:
    """Yield the leaves of the arguments of a step: values as `Ref`, sizes as `Index`."""
    if isinstance(step, Call):
        yield from leaves((step.args, step.kwargs))
    elif isinstance(step, Size):
        yield Ref(step.source)
    elif isinstance(step, Launch):
        yield from map(Ref, step.buffers)
    else:
        if step.memory:
            yield Ref(step.memory)
        yield from (*step.shape, *step.strides)


def names_read(step: Step) -> list[str]:
    """Return the names of the values that a step needs, each once."""
    return list(dict.fromkeys(leaf.name for leaf in arguments(step) if isinstance(leaf, Ref)))


def symbols_read(step: Step) -> list[str]:
    """Return the size symbols that a step needs, each once."""
    if isinstance(step, Launch):
        return list(step.sizes)
    sizes = [leaf for leaf in arguments(step) if isinstance(leaf, Index)]
    return [symbol.name for symbol in symbols_of(sizes)]
