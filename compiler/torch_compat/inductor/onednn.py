"""oneDNN: the abilities of this machine, and torch's operators around its kernels."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
from functools import cache
from typing import Any

import torch

from ctk.compiler.torch_compat.fake import fake_tensors as fake


def runs(dtype: torch.dtype) -> bool:
    """Return whether oneDNN computes products and convolutions of a dtype on this CPU, as they are.

    Not in float32 where the process lets oneDNN round its operands (`fp32_precision`), nor in 16
    bits without instructions for them.
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
    """Return `(x, weight, bias, attr, scalars, algorithm)`."""
    return torch.ops.mkldnn._linear_pointwise.default


def linear_binary() -> Any:
    """Return `(x, other, weight, bias, attr)`."""
    return torch.ops.mkldnn._linear_pointwise.binary


def convolution() -> Any:
    """Return `(x, weight, bias, padding, stride, dilation, groups, attr, scalars, algorithm)`."""
    return torch.ops.mkldnn._convolution_pointwise.default


def convolution_binary() -> Any:
    """Return the same with `other` behind `x`, and at the end the attributes of two operators.

    Those are `binary_attr, alpha, unary_attr, unary_scalars, unary_algorithm`.
    """
    return torch.ops.mkldnn._convolution_pointwise.binary


def transposed_convolution() -> Any:
    """Return `convolution` with the output padding behind the padding."""
    return torch.ops.mkldnn._convolution_transpose_pointwise.default


def has_wrong_type(target: object) -> bool:
    """Return whether fake tensors get a wrong type from an operator.

    A transposed convolution gives contiguous strides there (torch 2.13 and 2.15), and the channels
    of its input if the weight is plain (torch 2.13).
    """
    if getattr(target, "namespace", None) != "mkldnn":
        return False
    return target is transposed_convolution()


def recurrent() -> Any:
    """Return the layer that computes one direction of an LSTM: its weights at 1 and 2."""
    return torch.ops.aten.mkldnn_rnn_layer.default


def pack_recurrent() -> Any:
    """Return `(weight, weight, hidden_size, reverse, has_biases, batch_first)`: packs two."""
    return torch.ops.mkldnn._reorder_mkldnn_rnn_layer_weight.default


def packed_linear_weight(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight as oneDNN's products like it: an opaque tensor."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, None)


def packed_convolution_weight(
    weight: torch.Tensor, settings: tuple[Any, ...], input_size: list[int]
) -> torch.Tensor:
    """Return the weight of a convolution as oneDNN likes it: an opaque tensor.

    Args:
        weight: The plain weight.
        settings: padding, stride, dilation and groups; if the convolution is transposed, the output
            padding behind the padding.
        input_size: The usual size of `x`: oneDNN packs again in each call if another is better.
    """
    library = torch.ops.mkldnn
    is_transposed = len(settings) > 4
    pack = (
        library._reorder_convolution_transpose_weight
        if is_transposed
        else library._reorder_convolution_weight
    )
    return pack(weight, *settings, input_size)


def runs_quantized() -> bool:
    """Return whether oneDNN computes products and convolutions of 8-bit integers here."""
    backend: Any = torch.backends.mkldnn
    engines = torch.backends.quantized.supported_engines
    return backend.is_available() and bool(backend.enabled) and "onednn" in engines


@cache
def adds_pairs_in_16_bits() -> bool:
    """Return whether sums of two products of 8-bit integers saturate at 16 bits on this CPU.

    So do x86 CPUs without VNNI: 255 * 127 + 255 * 127 gives 32767 there. Asked of the CPU (a
    variable may keep oneDNN from its instructions) and of oneDNN (one kernel does not speak for
    all).
    """
    known: Any = torch.cpu.get_capabilities()
    if not any(known.get(name) for name in ("avx512_vnni", "avx_vnni")):
        return True
    with fake.real_compute():
        x, weight = torch.full((2, 64), 255, dtype=torch.uint8), torch.full((32, 64), 127)
        packed = torch.ops.onednn.qlinear_prepack(weight.to(torch.int8), None)
        ones, zeros = torch.ones(32), torch.zeros(32, dtype=torch.int64)
        settings = (None, 1.0, 0, torch.float32, "none", [], "")
        result = qlinear()(x, 1.0, 0, packed, ones, zeros, *settings)
        return bool((result != 255.0 * 127 * 64).any())


def qlinear() -> Any:
    """Return `(x, x_scale, x_zero_point, packed, scales, zero_points, bias, ...)`.

    The others: output_scale, output_zero_point, output_dtype, attr, scalars, algorithm. A weight
    that is not packed crashes the process.
    """
    return torch.ops.onednn.qlinear_pointwise.default


def qlinear_dynamic() -> Any:
    """Return the same for a scale and a zero point of `x` that are tensors."""
    return torch.ops.onednn.qlinear_pointwise.tensor


def qlinear_sum() -> Any:
    """Return `qlinear` with another operand in front of the bias, which is added to the result.

    Behind output_dtype come its scale and zero point, the operator (`add`) and a factor.
    """
    return torch.ops.onednn.qlinear_pointwise.binary


def qlinears() -> tuple[Any, ...]:
    """Return the products of integers: static, dynamic, and both with a sum."""
    dynamic = torch.ops.onednn.qlinear_pointwise.binary_tensor
    return qlinear(), qlinear_dynamic(), qlinear_sum(), dynamic


def qconvolution() -> Any:
    """Return `qlinear` with stride, padding, dilation and groups behind the bias."""
    return torch.ops.onednn.qconv_pointwise.default


def qconvolution_sum() -> Any:
    """Return `qconvolution` with a tensor in front of the bias, into which the result is added.

    The tensor has the type of the result. Behind output_dtype come its scale and zero point, the
    operator (`sum`), a factor, and attr, scalars and algorithm of the operator behind the sum.
    The operator returns that tensor, which its schema does not declare: read the tensor instead.
    """
    return torch.ops.onednn.qconv2d_pointwise.binary


def pack_qlinear() -> Any:
    """Return `(weight, x_shape)`: packs a weight [outputs, inputs]."""
    return torch.ops.onednn.qlinear_prepack.default


def pack_qconvolution() -> Any:
    """Return the operator that packs the weight of a convolution, [outputs, inputs / groups, ...].

    `(weight, scales, x_scale, x_zero_point, stride, padding, dilation, groups, x_shape)`.
    """
    return torch.ops.onednn.qconv_prepack.default


def packs(target: object) -> bool:
    """Return whether an operator gives an opaque tensor, which fits only this machine."""
    namespace = getattr(target, "namespace", None)
    if namespace == "mkldnn":
        return target is pack_recurrent()
    return namespace == "onednn" and target in (pack_qlinear(), pack_qconvolution())


def quantized_decomposed() -> Any:
    """Return the library of operators that PT2E quantization writes into graphs.

    Importing the module registers them: `torch.ao.quantization.fx._decomposed`.
    """
    importlib.import_module("torch.ao.quantization.fx._decomposed")
    return torch.ops.quantized_decomposed
