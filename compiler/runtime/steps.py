"""The schedule of a compiled graph as data: what one call of it does, step by step.

    x, w, s0 = inputs
    mm = Call(aten.mm, (x, w))                      an operator of the library
    relu = Allocation(float32, (s0, 8), (8, 1))     memory that kernels fill
    Launch(0, (relu, mm), (s0,))                    kernel 0: its buffers, its sizes
    return (relu,)

It holds no Python that was generated: `python_code.py` prints it for this process, packages and the
cache keep it as it is, and `c_api` prints it in C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch

from ctk.compiler.sizes.index import Index
from ctk.compiler.sizes.size_guards import symbols_of


@dataclass(frozen=True, slots=True)
class Ref:
    """The value that an input, a constant or an earlier step has given a name."""

    name: str


Argument: TypeAlias = Any
"""A plain value of Python or torch, a `Ref`, an `Index` of size symbols, or a list, tuple, dict or
slice of these."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the library, or of one of the functions in `helpers.py`.

    Attributes:
        name: Of its value.
        function: An operator, or another function that has a name in `runtime/functions.py`;
            anything that can be called in a schedule that is not kept.
        args: Positional arguments.
        kwargs: The others.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument] = field(default_factory=dict[str, Argument])


@dataclass(frozen=True, slots=True)
class Size:
    """A size symbol learns its value.

    Attributes:
        symbol: Its name.
        source: The value that tells it: an integer, or a tensor.
        axis: Of the tensor; None for an integer.
    """

    symbol: str
    source: str
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """New memory for kernels, or memory that nobody needs any more.

    Attributes:
        name: Of the tensor.
        dtype: Of its elements.
        shape: Its sizes.
        strides: In elements.
        device: Where it is.
        memory: Name of the tensor whose memory it takes; empty for new memory.
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
        kernel: Its number among the kernels of the graph.
        buffers: Names of tensors: those that it writes, then those that it reads.
        sizes: Size symbols.
    """

    kernel: int
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]


Step: TypeAlias = Call | Size | Allocation | Launch


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a call of a graph, or of a part of it, does.

    Attributes:
        inputs: Names of its inputs, in order.
        steps: In order.
        result: What it returns.
        constants: The attribute of the graph's module that is the value of a name.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    result: Argument
    constants: Mapping[str, str] = field(default_factory=dict[str, str])


def leaves(argument: Argument) -> Iterator[Any]:
    """Yield what an argument is made of, without lists, tuples, dicts and slices."""
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
    """Yield the leaves of what a step is given: names of values as `Ref`, sizes as `Index`."""
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
