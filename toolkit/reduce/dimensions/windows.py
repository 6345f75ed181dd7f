"""Cut a window out of a tensor: fewer elements, with all other properties kept.

Memory order, expanded dimensions, gaps between rows, storage offset, and being a parameter stay.
The window holds the notable element (`notable_index`).
"""

from collections.abc import Sequence
from typing import cast

import torch

from ctk.compiler.fx.clone import extent, overlaps
from ctk.toolkit.reduce.value_edits import is_strided

FAR_ABOVE = 8.0
"""Least ratio of the largest absolute value to the mean that makes it notable."""


def strides_for(tensor: torch.Tensor, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a window of a tensor in memory of its own.

    Example: a 4x6 tensor of strides (8, 1) has two elements between its rows; so has its 2x3
    window, of strides (5, 1).
    """
    if _is_interleaved(tensor):
        return tuple(tensor.stride())
    strides = [0] * tensor.dim()
    before = after = 1  # extent of the inner dimensions: in the tensor, in the window
    for dim in sorted(range(tensor.dim()), key=lambda dim: (tensor.stride(dim), -dim)):
        stride, size = tensor.stride(dim), tensor.shape[dim]
        if stride == 0:
            continue
        gap = stride - before if size > 1 else 0
        strides[dim] = after + gap
        before = stride * size if size > 1 else before
        after = strides[dim] * sizes[dim]
    return tuple(strides)


def narrow(tensor: torch.Tensor, starts: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """Return a window of a tensor as a view."""
    for dim, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        tensor = tensor.narrow(dim, start, size)
    return tensor


def window(tensor: torch.Tensor, starts: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """Return a copy of a window as a leaf, a parameter if the tensor is one."""
    with torch.no_grad():
        part = narrow(tensor.detach(), starts, sizes)
        new = _copy_at(part, strides_for(tensor, sizes), int(tensor.storage_offset()))
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
    return new.requires_grad_(tensor.requires_grad)


def window_start(index: int, size: int) -> int:
    """Return the start of a window that holds an index and as little as possible before it."""
    return max(0, index - size + 1) if size else 0


def notable_index(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the notable element, which a window must hold; None if there is none.

    Cases: 1. a NaN or infinite element; 2. one far above the mean; 3. in each dimension that begins
    with zeros only, the last non-zero.
    """
    if not is_strided(tensor) or tensor.is_meta or not tensor.numel():
        return None
    values = tensor.detach().float() if tensor.is_floating_point() else tensor.detach()
    if tensor.is_floating_point():
        found = _odd(values.abs()).nonzero()
        if len(found):
            return tuple(cast("list[int]", found[0].tolist()))
    nonzero = values != 0
    index = [_last_behind_zeros(nonzero, dim) for dim in range(tensor.dim())]
    return tuple(index) if any(index) else None


def _odd(sizes: torch.Tensor) -> torch.Tensor:
    """Return which absolute values are NaN, infinite or, if none is, far above the mean."""
    odd = ~sizes.isfinite()
    if bool(odd.any()):
        return odd
    return (sizes == sizes.max()) & (sizes > FAR_ABOVE * sizes.mean())


def _last_behind_zeros(nonzero: torch.Tensor, dim: int) -> int:
    """Return the last position of a dimension with a non-zero; 0 if none or the first has one."""
    others = [each for each in range(nonzero.dim()) if each != dim]
    filled = (nonzero.any(others) if others else nonzero).nonzero()
    return 0 if not len(filled) or int(filled[0]) == 0 else int(filled[-1])


def _is_interleaved(tensor: torch.Tensor) -> bool:
    """Return whether elements overlap in another way than by expanded dimensions."""
    kept = [dim for dim in range(tensor.dim()) if tensor.stride(dim)]
    shape, stride = [tensor.shape[d] for d in kept], [tensor.stride(d) for d in kept]
    return overlaps(shape, stride)


def _copy_at(part: torch.Tensor, strides: Sequence[int], offset: int) -> torch.Tensor:
    """Return a copy of a tensor at an offset of a new storage; overlapping elements stay one."""
    if _is_interleaved(part):
        reach = extent(part.shape, part.stride())
        memory = part.new_zeros(offset + reach)
        memory[offset:] = part.as_strided((reach,), (1,))
        return memory.as_strided(part.shape, part.stride(), offset)
    core = part
    for dim, stride in enumerate(strides):
        core = core.narrow(dim, 0, 1) if stride == 0 and core.shape[dim] else core
    reach = extent(core.shape, strides)
    memory = part.new_zeros(offset + reach)
    memory.as_strided(core.shape, strides, offset).copy_(core)
    return memory.as_strided(part.shape, strides, offset)
