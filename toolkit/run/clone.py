"""Clone values for a run, exactly: strides, offsets, shared storage, identity, leaves, parameters.

`Tensor.clone` gives up expanded and overlapping strides and separates tensors that share storage; a
program that writes into one of its inputs then means something else. What it does not do: it clones
no graph.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from ctk.repro_templates.float64 import wider


def clone_inputs(
    inputs: Sequence[object], *, dtype: torch.dtype | None = None
) -> tuple[object, ...]:
    """Return clones of a program's inputs, as new leaves.

    1. Shape, stride and storage offset stay, expanded and overlapping ones too.
    2. The same object twice gives the same clone twice; tensors on one storage share one again.
    3. `requires_grad` stays, an `nn.Parameter` stays one, gradients are left behind.
    4. Values that are no tensors are passed on.

    Args:
        inputs: One value per placeholder; only read.
        dtype: `torch.float64` turns floats into float64 and complex numbers into complex128. None:
            keep.

    Raises:
        PrecisionRefused: `dtype` is given, and an input has a float8 or a quantized dtype.
    """
    if dtype not in (None, torch.float64):
        raise ValueError(f"inputs can be cloned in their own dtype or float64, not {dtype}")
    tensors = {id(value): value for value in inputs if isinstance(value, Tensor)}
    with torch.inference_mode(False), torch.no_grad():
        clones = _clone_all(tensors, wide=dtype is not None)
    return tuple(clones[id(v)] if isinstance(v, Tensor) else v for v in inputs)


def _clone_all(tensors: dict[int, Tensor], *, wide: bool) -> dict[int, Tensor]:
    groups: dict[object, list[tuple[int, Tensor]]] = {}
    for key, tensor in tensors.items():
        groups.setdefault(_storage_key(key, tensor, wide), []).append((key, tensor))
    convert = wider if wide else _own
    clones: dict[int, Tensor] = {}
    for members in groups.values():
        plain = _is_plain(members[0][1])
        group = [tensor for _, tensor in members]
        made = _clone_group(group, convert) if plain else [_clone_odd(group[0], convert)]
        for (key, tensor), new in zip(members, made, strict=True):
            clones[key] = _as_leaf(new, tensor)
    return clones


def _own(dtype: torch.dtype) -> torch.dtype:
    return dtype


def _is_plain(tensor: Tensor) -> bool:
    """Return whether the tensor is ordinary memory: shape, stride and offset over one storage."""
    ordinary = type(tensor) in (Tensor, Parameter) and tensor.layout is torch.strided
    lazy = ordinary and (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
    return ordinary and not lazy and tensor.device.type != "meta"


def _storage_key(key: int, tensor: Tensor, wide: bool) -> object:
    if not _is_plain(tensor) or not tensor.untyped_storage().data_ptr():
        return key
    shared = (tensor.device, tensor.untyped_storage().data_ptr())
    # Views of one storage in two dtypes cannot stay views when each gets another item size.
    return (*shared, tensor.dtype) if wide else shared


def _clone_group(
    tensors: Sequence[Tensor], convert: Callable[[torch.dtype], torch.dtype]
) -> list[Tensor]:
    """Clone tensors on one storage onto a new one; only the bytes that they cover are read."""
    spans = [_span(tensor) for tensor in tensors]
    low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    dtypes = {tensor.dtype for tensor in tensors}
    unit = dtypes.pop() if len(dtypes) == 1 else torch.uint8
    start, stop = low // unit.itemsize, high // unit.itemsize
    device, storage = tensors[0].device, tensors[0].untyped_storage()
    source = torch.empty(0, dtype=unit, device=device).set_(storage, start, (stop - start,), (1,))
    room = torch.empty(stop, dtype=convert(unit), device=device)
    room[start:].copy_(source)
    return [_view(room, tensor, convert(tensor.dtype)) for tensor in tensors]


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte of the tensor in its storage, and the one after its last."""
    first, size = int(tensor.storage_offset()), tensor.dtype.itemsize
    if tensor.numel() == 0:
        return 0, 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    extent = sum((int(length) - 1) * int(stride) for length, stride in steps)
    return first * size, (first + extent + 1) * size


def _view(room: Tensor, like: Tensor, dtype: torch.dtype) -> Tensor:
    storage, empty = room.untyped_storage(), torch.empty(0, dtype=dtype, device=room.device)
    offset = like.storage_offset() if like.numel() else 0
    return empty.set_(storage, offset, like.size(), like.stride())


def _clone_odd(tensor: Tensor, convert: Callable[[torch.dtype], torch.dtype]) -> Tensor:
    """Clone what is not ordinary memory (sparse, quantized, lazily conjugated, a subclass)."""
    return tensor.detach().clone().to(convert(tensor.dtype))


def _as_leaf(new: Tensor, like: Tensor) -> Tensor:
    if isinstance(like, Parameter):
        return Parameter(new, requires_grad=like.requires_grad)
    return new.requires_grad_(like.requires_grad)
