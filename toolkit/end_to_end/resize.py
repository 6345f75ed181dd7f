"""Make the arguments of one more call with another batch size, so that a recompile is looked at.

    f(x: (3, 4), y: (3,), w: (4, 4))    ->    f(x: (4, 4), y: (4,), w: (4, 4))

The batch size is the first dimension of the first tensor, and grows by one in each tensor that
begins with it: its last row is there twice. A program for which that means nothing raises in eager,
and the call is not made. What it does not do: change tensors of which nothing is known but their
numbers: parameters, subclasses, views into each other's memory.
"""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from ctk.toolkit.usercode.program import Arguments

SMALLEST = 2
"""Sizes 0 and 1 are compiled for themselves: they are no batch."""


def resized(arguments: Arguments) -> list[Arguments]:
    """Return the arguments of one more call with one more row; none if the inputs have no batch.

    Args:
        arguments: Of the last call; what has no batch is shared with it.
    """
    tensors = _tensors([*arguments.args, *arguments.kwargs.values()])
    batch = next((tensor.shape[0] for tensor in tensors if tensor.dim()), 0)
    if batch < SMALLEST or not all(_is_plain(tensor) for tensor in tensors):
        return []
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()]
    if len(set(storages)) < len(storages):
        return []
    args = tuple(_grown(each, batch) for each in arguments.args)
    kwargs = {name: _grown(each, batch) for name, each in arguments.kwargs.items()}
    return [Arguments(args, kwargs)]


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return _tensors(list(cast("Mapping[object, object]", value).values()))
    if isinstance(value, list | tuple):
        return [t for each in cast("list[object]", value) for t in _tensors(each)]
    return []


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is nothing but numbers in memory of its own."""
    has_memory = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.is_leaf
    return has_memory and not tensor.is_quantized and not hasattr(tensor, "_dynamo_static_indices")


def _grown(value: object, batch: int) -> object:
    if isinstance(value, Tensor):
        return _with_one_more_row(value) if value.dim() and value.shape[0] == batch else value
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return {key: _grown(each, batch) for key, each in table.items()}
    if type(value) in (list, tuple):
        items = [_grown(each, batch) for each in cast("list[object]", value)]
        return items if isinstance(value, list) else tuple(items)
    return value


def _with_one_more_row(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        grown = torch.cat([tensor, tensor[-1:]])
    return grown.requires_grad_(tensor.requires_grad)
