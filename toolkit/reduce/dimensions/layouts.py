"""Cut a window out of a tensor: fewer elements, and else what it was.

The order of its dimensions in memory stays, expanded dimensions stay expanded, gaps between rows
keep their width, and a parameter is one. The window begins at the start, moved as little as is
needed to hold the most notable element: a NaN, an infinite, or a number far above the others.
"""

from collections.abc import Sequence
from typing import cast

import torch

from ctk.compiler.fx.clone import extent, overlaps

FAR_ABOVE = 8.0
"""How many times the mean absolute value the largest must be to be notable."""


def strides_for(tensor: torch.Tensor, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a window of a tensor in memory of its own.

    Example: a 4x6 tensor of strides (8, 1) has two elements between its rows; so has its 2x3
    window, of strides (5, 1).

    Args:
        tensor: Strided.
        sizes: As many as it has dimensions, none larger than its own.
    """
    if _is_interleaved(tensor):
        return tuple(tensor.stride())
    strides = [0] * tensor.dim()
    before = after = 1  # how far what lies further inside reaches: in the tensor, in the window
    for dim in sorted(range(tensor.dim()), key=lambda dim: (tensor.stride(dim), -dim)):
        stride, size = tensor.stride(dim), tensor.shape[dim]
        if stride == 0:
            continue
        gap = stride - before if size > 1 else 0
        strides[dim] = after + gap
        before = stride * size if size > 1 else before
        after = strides[dim] * sizes[dim]
    return tuple(strides)


def window(tensor: torch.Tensor, starts: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """Return a copy of a window as a leaf, a parameter if the tensor is one."""
    with torch.no_grad():
        part = tensor.detach()
        for dim, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            part = part.narrow(dim, start, size)
        new = _placed(part, strides_for(tensor, sizes))
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
    return new.requires_grad_(tensor.requires_grad)


def notable_index(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return where a NaN or infinite element is, else one far above the mean; None if none is."""
    if not tensor.is_floating_point() or tensor.is_meta or not tensor.numel():
        return None
    values = tensor.detach().abs().float()
    odd = ~values.isfinite()
    if not bool(odd.any()):
        odd = (values == values.max()) & (values > FAR_ABOVE * values.mean())
    found = odd.nonzero()
    return tuple(cast("list[int]", found[0].tolist())) if len(found) else None


def _is_interleaved(tensor: torch.Tensor) -> bool:
    """Return whether elements overlap in another way than by expanded dimensions."""
    kept = [dim for dim in range(tensor.dim()) if tensor.stride(dim)]
    shape, stride = [tensor.shape[d] for d in kept], [tensor.stride(d) for d in kept]
    return overlaps(shape, stride)


def _placed(part: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Return a copy of a tensor with other strides; elements that are one stay one."""
    if _is_interleaved(part):
        memory = part.as_strided((extent(part.shape, part.stride()),), (1,)).clone()
        return memory.as_strided(part.shape, part.stride())
    core = part
    for dim, stride in enumerate(strides):
        core = core.narrow(dim, 0, 1) if stride == 0 else core
    memory = torch.zeros(extent(core.shape, strides), dtype=part.dtype, device=part.device)
    memory.as_strided(core.shape, strides).copy_(core)
    return memory.as_strided(part.shape, strides)
