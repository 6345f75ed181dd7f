"""Functions of ctk that a schedule calls: tensors are made to fit the strides of kernels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ctk.compiler.torch_compat.process import strided_tensors


def fitted(
    tensor: Tensor, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """Return a tensor with the strides and type that kernels were made for; a copy if necessary.

    An operator does not always return the layout that torch records for it; a lazy negative becomes
    a tensor whose memory holds its values.
    """
    if tensor.dtype is dtype and not tensor.is_neg():
        if tensor.stride() == stride and tensor.shape == size:  # nearly always, and fast
            return tensor
        if strided_tensors.fits(tensor, size, stride):
            return tensor
    if list(tensor.shape) != list(size):
        raise _mismatch(tensor, size, stride)
    return torch.empty_strided(size, stride, dtype=dtype, device=tensor.device).copy_(tensor)


def required(tensor: Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """Return a tensor that a kernel writes to; refuse it if its strides differ."""
    if tensor.is_neg():
        raise ValueError(
            "the graph writes to a tensor that is a lazy negative, and was compiled for another "
            "kind: pass `resolve_neg()` of the tensor, or compile it again"
        )
    is_same = tensor.stride() == stride and tensor.shape == size
    if not is_same and not strided_tensors.fits(tensor, size, stride):
        raise _mismatch(tensor, size, stride)
    return tensor


def _mismatch(tensor: Tensor, size: Sequence[int], stride: Sequence[int]) -> ValueError:
    got = f"size {list(tensor.shape)} and strides {list(tensor.stride())}"
    return ValueError(
        f"the graph was compiled for a tensor of size {list(size)} and strides {list(stride)}, "
        f"and got one of {got}: compile it again for that"
    )
