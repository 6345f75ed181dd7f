"""oneDNN: what this machine can run, and torch's operators around its kernels."""

# What pyright says of private names is what this package is for.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from typing import Any

import torch


def runs(dtype: torch.dtype) -> bool:
    """Return whether oneDNN computes products and convolutions of a dtype on this CPU, as they are.

    Not in float32 where the process lets oneDNN round its operands (`fp32_precision`), nor in 16
    bits without instructions for them. Seen in torch 2.11 and 2.13.
    """
    backend: Any = torch.backends.mkldnn
    if not backend.is_available() or not backend.enabled:
        return False
    if dtype is torch.float32:
        given = [getattr(backend, part).fp32_precision for part in ("matmul", "conv")]
        return not {"bf16", "tf32"} & set(given)
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype is torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return False


def linear() -> Any:
    """Return `(x, weight, bias, attr, scalars, algorithm)`. Seen in torch 2.11 and 2.13."""
    return torch.ops.mkldnn._linear_pointwise.default


def linear_binary() -> Any:
    """Return `(x, other, weight, bias, attr)`. Seen in torch 2.11 and 2.13."""
    return torch.ops.mkldnn._linear_pointwise.binary


def convolution() -> Any:
    """Return `(x, weight, bias, padding, stride, dilation, groups, attr, scalars, algorithm)`.

    Seen in torch 2.11 and 2.13.
    """
    return torch.ops.mkldnn._convolution_pointwise.default


def convolution_binary() -> Any:
    """Return the same with `other` behind `x`, and at the end the attributes of two operators.

    Those are `binary_attr, alpha, unary_attr, unary_scalars, unary_algorithm`. Seen in torch 2.11
    and 2.13.
    """
    return torch.ops.mkldnn._convolution_pointwise.binary


def packed_linear_weight(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight as oneDNN's products like it: an opaque tensor (torch 2.11, 2.13)."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, None)


def packed_convolution_weight(
    weight: torch.Tensor, settings: tuple[Any, ...], input_size: list[int]
) -> torch.Tensor:
    """Return a weight as oneDNN's convolutions like it: an opaque tensor.

    Args:
        weight: Of a convolution that is not transposed.
        settings: Its padding, stride, dilation and groups.
        input_size: Of its input.

    Seen in torch 2.11 and 2.13.
    """
    return torch.ops.mkldnn._reorder_convolution_weight(weight, *settings, input_size)
