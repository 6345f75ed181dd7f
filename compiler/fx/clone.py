"""Copy tensors with their memory layout, and describe layouts. Nothing here looks at a graph."""

from collections.abc import Sequence

import torch


def clone_value(value: object) -> object:
    """Return a detached copy of a tensor with its strides, overlapping ones too.

    `Tensor.clone` would make an expanded tensor contiguous. The copy has memory of its own: tensors
    that shared memory no longer do. Lists and tuples are copied element by element;
    other values are returned as they are.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(clone_value(each) for each in value)
    if not isinstance(value, torch.Tensor):
        return value
    source = value.detach()
    copied = source.clone()
    if source.layout != torch.strided or not source.numel() or copied.stride() == source.stride():
        return copied
    span = 1 + sum(
        (size - 1) * stride for size, stride in zip(value.size(), value.stride(), strict=True)
    )
    memory = source.as_strided((span,), (1,)).clone()
    return memory.as_strided(value.size(), value.stride())


def clone_values(values: Sequence[object]) -> tuple[object, ...]:
    """Return `clone_value` of each."""
    return tuple(clone_value(value) for value in values)


def layout(value: object) -> tuple[object, ...]:
    """Return what a result must keep besides its numbers: type, dtype, shape, strides, device."""
    if isinstance(value, (list, tuple)):
        return tuple(layout(each) for each in value)
    if not isinstance(value, torch.Tensor):
        return (type(value),)
    strides = tuple(value.stride()) if value.layout == torch.strided else None
    return (torch.Tensor, value.dtype, tuple(value.size()), strides, value.device, value.layout)
