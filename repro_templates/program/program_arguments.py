"""The arguments of a program's calls: as a file defines them, by name, and changed for more calls.

    f(x: (3, 4), y: (3,), w: (4, 4))    ->    f(x: (4, 4), y: (4,), w: (4, 4))    other sizes
    f(x: [1., 2., 3.], n: 7)            ->    f(x: [3., 1., 2.], n: 7)            other values

A call with another batch size shows recompiled code. The batch size is the first dimension of the
first tensor, and grows by one in each tensor that begins with it: its last row is repeated. A call
with other values shows values that a compiler kept from an earlier call: the numbers of each tensor
change places, so that an index stays one. If the program raises in eager for them, the call is not
made.

Only tensors that are plain numbers are changed: no parameters, subclasses, views into each other's
memory, or tensors on `meta`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from ctk.repro_templates.graph.running import leaves
from ctk.repro_templates.numbers.errors import identical

SMALLEST = 2
"""Sizes 0 and 1 are specialized by compilers: they do not count as a batch."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call of a program."""

    args: tuple[object, ...] = field(repr=False, default=())
    kwargs: Mapping[str, object] = field(repr=False, default_factory=dict[str, object])


def arguments_of(value: Any) -> Arguments:
    """Return the result of `inputs()` as arguments: a tuple, one value, or a dict of keywords."""
    if isinstance(value, dict):
        return Arguments((), cast("dict[str, object]", value))
    return Arguments(value if isinstance(value, tuple) else (value,))


def arguments_named(arguments: Arguments) -> dict[str, object]:
    """Return the arguments of a call by name: `in0`, and keywords by theirs."""
    return {f"in{i}": each for i, each in enumerate(arguments.args)} | dict(arguments.kwargs)


def resize_arguments(arguments: Arguments) -> list[Arguments]:
    """Return the arguments of one more call with one more row; none if the inputs have no batch.

    Args:
        arguments: Of the last call; values without a batch are shared with it.
    """
    tensors = tensors_in(arguments)
    batch = next((tensor.shape[0] for tensor in tensors if tensor.dim()), 0)
    if batch < SMALLEST or not are_apart(tensors):
        return []

    def grow(tensor: Tensor) -> Tensor:
        return _with_one_more_row(tensor) if tensor.shape[:1] == (batch,) else tensor

    return [change_tensors(arguments, grow)]


def exchange_values(arguments: Arguments) -> list[Arguments]:
    """Return the arguments of one more call with other values; none if that changes nothing.

    Args:
        arguments: Of the last call; values without numbers to exchange are shared with it.
    """
    tensors = tensors_in(arguments)
    if not are_apart(tensors) or all(identical(_roll(t), t) for t in tensors):
        return []
    return [change_tensors(arguments, _roll)]


def are_apart(tensors: list[Tensor]) -> bool:
    """Return whether tensors are plain numbers, each in memory of its own."""
    if not all(_is_numbers(tensor) for tensor in tensors):
        return False
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()]
    return len(set(storages)) == len(storages)


def change_tensors(arguments: Arguments, change: Callable[[Tensor], Tensor]) -> Arguments:
    """Return arguments with each tensor changed; lists, tuples and dicts around them are new."""
    kwargs = {name: _map_tensors(each, change) for name, each in arguments.kwargs.items()}
    return Arguments(tuple(_map_tensors(arg, change) for arg in arguments.args), kwargs)


def tensors_in(arguments: Arguments) -> list[Tensor]:
    """Return the tensors in the arguments of a call, also those in containers."""
    found = leaves([arguments.args, arguments.kwargs])
    return [each for each in found if isinstance(each, Tensor)]


def _is_numbers(tensor: Tensor) -> bool:
    """Return whether a tensor is plain numbers in memory of its own."""
    is_dense = type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.is_meta
    is_plain = is_dense and tensor.is_leaf and not tensor.is_quantized
    return is_plain and not hasattr(tensor, "_dynamo_static_indices")


def _map_tensors(value: object, change: Callable[[Tensor], Tensor]) -> object:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return {key: _map_tensors(each, change) for key, each in table.items()}
    if type(value) in (list, tuple):
        items = [_map_tensors(each, change) for each in cast("list[object]", value)]
        return items if isinstance(value, list) else tuple(items)
    return value


def _roll(tensor: Tensor) -> Tensor:
    """Return a tensor whose numbers have moved by one place; a mask as it is."""
    if tensor.dtype is torch.bool or tensor.numel() < SMALLEST:
        return tensor
    with torch.no_grad():
        rolled = torch.empty_like(tensor).copy_(tensor.roll(1))
    return rolled.requires_grad_(tensor.requires_grad)


def _with_one_more_row(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        grown = torch.cat([tensor, tensor[-1:]])
    return grown.requires_grad_(tensor.requires_grad)
