"""New tensors of given strides, with little overhead, and tensors in the memory of others."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor


def empty_on_current(kind: str) -> Callable[..., Tensor]:
    """Return the function of (size, stride, dtype) that makes a tensor without dispatch.

    It makes it on the CPU, or on the GPU that is the current device.
    """
    guards = torch._C._dynamo.guards
    return guards._empty_strided_cuda if kind == "cuda" else guards._empty_strided_cpu


@cache
def current_device() -> Callable[[], int]:
    """Return the function that returns the number of the current GPU."""
    if not torch.cuda.is_available():
        return torch.cuda.current_device
    return torch._C._cuda_getDevice


def on_device(index: int, run: Callable[[list[Any]], Any], inputs: list[Any]) -> Any:
    """Call a function while a GPU is the current device."""
    with torch.cuda.device(index):
        return run(inputs)


def empty(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: Any) -> Tensor:
    """Return a new tensor on a device."""
    if device.type == "cuda" and device.index in (None, torch.cuda.current_device()):
        return torch._C._dynamo.guards._empty_strided_cuda(size, stride, dtype)
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


@cache
def reinterpret() -> Callable[..., Tensor]:
    """Return the function that makes a tensor in the memory of another.

    It takes the other one, size, stride, and how many elements it begins behind that. The result
    has the type of the other one, and no autograd; nothing is dispatched. Size and stride are
    tuples: torch 2.14 and later refuse a list and a `torch.Size`.
    """
    return torch._C._dynamo.guards._reinterpret_tensor


def in_memory_of(
    other: Tensor, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """Return a tensor in the memory of another, which is large enough and used no more.

    Strides of the other one do not matter; `Tensor.view(dtype)` refuses most of them.
    """
    if other.dtype == dtype:
        return reinterpret()(other, size, stride, 0)
    start = other.storage_offset() * other.itemsize // dtype.itemsize
    typed = torch.empty(0, dtype=dtype, device=other.device)
    return typed.set_(other.untyped_storage(), start, size, stride)


def overlap(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors, which meet in memory, may share an element.

    torch computes it for tensors of one storage only.
    """
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return True
    return bool(torch._C._dynamo.guards.compute_overlapping_tensors([one, other], symbolic=False))


def fits(tensor: Tensor, size: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether a tensor has a size and strides; those of single elements do not matter."""
    try:
        torch._C._dynamo.guards.assert_size_stride(tensor, size, stride)
    except AssertionError:
        return False
    return True


def same_layouts(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Return a check of other tensors, in this order: of the sizes, strides and type of these.

    It also compares the Python types, devices, dispatch keys and whether gradients are required.
    """
    guards = torch._C._dynamo.guards.TensorGuards
    return guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
