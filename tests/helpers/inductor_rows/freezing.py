"""Rows of `mkldnn_fusion.py`, `quantization.py`, `binary_folding.py` and `freezing_patterns.py`."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ctk.compiler.torch_compat.inductor import onednn
from tests.helpers.inductor_rows import Program, row, shows
from tests.helpers.quantized_programs import Quantized, requantized

FREEZING = {"freezing": True}
FROZEN: dict[str, Any] = {"config": FREEZING, "their_config": FREEZING}


class Then(nn.Module):
    """Layers, and a function of the layers and the input."""

    def __init__(self, function, *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.function = nn.ModuleList(layers), function

    def forward(self, x):
        return self.function(x, *self.layers)


def linear(size: int = 16) -> nn.Module:
    return nn.Linear(16, size)


def conv() -> nn.Module:
    return nn.Conv2d(4, 8, 3, padding=1)


ROWS, PICTURE = torch.randn(4, 16), torch.randn(2, 4, 8, 8)


def frozen(function, *layers: nn.Module, x=ROWS) -> Program:
    return Then(function, *layers).eval(), [x]


@shows("mkldnn_fusion._register_weight_pack_pass", by="frozen/prepack_linear", **FROZEN)
def packed_linear() -> Program:
    return frozen(lambda x, a: functional.gelu(a(x)).sum(-1), linear())


HAS_BF16 = onednn.runs(torch.bfloat16)


@shows(
    "mkldnn_fusion._recover_linear",
    by="frozen/prepack_linear",
    theirs_fires=HAS_BF16,  # in float32 it takes MKL's product, which it leaves alone
    **FROZEN,
)
def linear_of_three_dimensions() -> Program:
    dtype = torch.bfloat16 if HAS_BF16 else torch.float32
    x = torch.randn(2, 3, 16, dtype=dtype)
    return frozen(lambda x, a: a(x).sin(), linear().to(dtype), x=x)


@shows("mkldnn_fusion._register_unary_fusion_lowering", by="frozen/fuse_post_ops", **FROZEN)
def gelu_behind_conv() -> Program:
    return frozen(lambda x, a: functional.gelu(a(x)).sum(-1), conv(), x=PICTURE)


@shows(
    "mkldnn_fusion._register_leaky_relu_fusion_lowering",
    by="frozen/fuse_post_ops",
    **FROZEN,
)
def leaky_relu_behind_conv() -> Program:
    return frozen(lambda x, a: functional.leaky_relu(a(x), 0.1).sum(-1), conv(), x=PICTURE)


@shows(
    "mkldnn_fusion._register_hardtanh_fusion_lowering",
    by="frozen/fuse_post_ops",
    note="By the option `exact_nan=False`: oneDNN's form turns NaN into a number.",
    config={**FREEZING, "fuse_post_ops.exact_nan": False},
    their_config=FREEZING,
)
def hardtanh_behind_conv() -> Program:
    return frozen(lambda x, a: functional.hardtanh(a(x)).sum(-1), conv(), x=PICTURE)


@shows(
    "mkldnn_fusion._register_binary_unary_fusion_lowering",
    "mkldnn_fusion._register_binary_unary_maybe_inplace_fusion_lowering",
    by="frozen/fuse_post_ops",
    **FROZEN,
)
def sum_of_a_layer() -> Program:
    return frozen(lambda x, a, b: (a(x) + b(x).sin()).relu(), conv(), conv(), x=PICTURE)


@shows("binary_folding.binary_folding_init", by="frozen/fold_binary", **FROZEN)
def arithmetic_behind_conv() -> Program:
    return frozen(lambda x, a: (a(x) * 2.5).sin(), conv(), x=PICTURE)


@shows(
    "freezing_patterns.addmm_patterns_init",
    by="frozen/concat_linear",
    config=FREEZING,
    their_config={**FREEZING, "cpp.enable_concat_linear": True},
    seen_as=("freezing_patterns.addmm_fuse_pattern*",),
)
def queries_keys_values() -> Program:
    return frozen(lambda x, a, b, c: a(x) * b(x) + c(x), linear(), linear(), linear())


row(
    "freezing_patterns.unnecessary_dtype_convert",
    by="joint/remove_noops",
    note="A cast to the same type.",
)


def quantized_conv(**settings) -> nn.Module:
    return Quantized(4, 4, 3, 3, padding=1, **settings)


@shows(
    "quantization._register_qlinear_weight_prepack_pass", by="frozen/prepack_quantized", **FROZEN
)
def quantized_linear() -> Program:
    return frozen(lambda x, a: a(requantized(x)), Quantized(16, 16))


@shows("quantization._register_qconv_weight_prepack_pass", by="frozen/prepack_quantized", **FROZEN)
def quantized_convolution() -> Program:
    return frozen(lambda x, a: a(requantized(x)), quantized_conv(), x=PICTURE)


@shows("quantization._register_dequant_promotion_pass", by="frozen/promote_dequantize", **FROZEN)
def one_dequantize_for_two_layers() -> Program:
    def f(x, a, b):
        y = requantized(x)
        return a(y) + b(y)

    return frozen(f, Quantized(16, 16), Quantized(16, 16), x=torch.randn(2, 3, 16))


@shows(
    "quantization._register_quantized_linear_unary_lowering",
    "quantization._register_qlinear_post_op_fusion_pass",
    by="frozen/fuse_quantized",
    **FROZEN,
)
def requantized_linear() -> Program:
    def f(x, a, b):
        return b(requantized(a(requantized(x)).relu()))

    return frozen(f, Quantized(16, 16), Quantized(16, 16))


@shows(
    "quantization._register_quantized_conv_lowering",
    "quantization._register_qconv_post_op_fusion_pass",
    by="frozen/fuse_quantized",
    **FROZEN,
)
def requantized_convolution() -> Program:
    def f(x, a, b):
        return b(requantized(a(requantized(x)).relu()))

    return frozen(f, quantized_conv(), quantized_conv(), x=PICTURE)


@shows(
    "quantization._register_quantized_linear_binary_lowering",
    by="frozen/fuse_quantized",
    **FROZEN,
)
def sum_of_two_quantized_linears() -> Program:
    def f(x, a, b, c):
        y = requantized(x)
        return c(requantized(a(y) + b(y)))

    return frozen(f, *(Quantized(16, 16) for _ in range(3)))


@shows(
    "quantization._register_quantized_conv_binary_lowering",
    by="frozen/fuse_quantized",
    **FROZEN,
)
def sum_behind_a_quantized_convolution() -> Program:
    def f(x, a, b, c):
        y = requantized(a(requantized(x)).relu())
        return c(requantized((b(y) + y).relu()))

    return frozen(f, *(quantized_conv() for _ in range(3)), x=PICTURE)


@shows(
    "quantization._register_quantized_maxpool2d_lowering",
    by="frozen/promote_dequantize",
    **FROZEN,
)
def quantized_pool() -> Program:
    def f(x, a, b):
        return b(requantized(functional.max_pool2d(requantized(a(requantized(x)).relu()), 2, 2)))

    return frozen(f, quantized_conv(), quantized_conv(), x=PICTURE)


@shows("quantization._register_quantized_cat_lowering", by="frozen/promote_dequantize", **FROZEN)
def quantized_join() -> Program:
    def f(x, a, b, c):
        y = requantized(x)
        return c(requantized(torch.cat([requantized(a(y)), requantized(b(y))], 1)))

    layers = quantized_conv(), quantized_conv(), Quantized(4, 8, 3, 3, padding=1)
    return frozen(f, *layers, x=PICTURE)


@shows(
    "quantization._register_quantized_reshape_lowering", by="frozen/promote_dequantize", **FROZEN
)
def quantized_reshape() -> Program:
    def f(x, a, b):
        return b(requantized(requantized(a(requantized(x))).reshape(2, 256)))

    return frozen(f, quantized_conv(), Quantized(8, 256), x=PICTURE)


class WeightOnly(nn.Module):
    """A layer with integer weights, one scale for each result."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (32, 64), dtype=torch.int8))
        self.register_buffer("scale", torch.full((32,), 0.01, dtype=torch.bfloat16))

    def forward(self, x):
        return torch.mm(x, self.weight.t().to(x.dtype)) * self.scale


@shows(
    "quantization._register_woq_lowering",
    "quantization._register_concat_linear_int8_woq_lowering",
    by="frozen/weight_only",
    **FROZEN,
)
def integer_weights() -> Program:
    return WeightOnly(), [torch.randn(4, 64).bfloat16()]


class SmoothQuant(nn.Module):
    """A product of integers, with scales for rows and for results."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (2048, 2048), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(2048) / 100)

    def forward(self, x, scale):
        return torch._int_mm(x, self.weight.t()).float() * scale * self.scale


@shows(
    "quantization._register_smooth_quant_int_mm_pattern",
    by="frozen/prepack_quantized",
    note="For weights of 4 Mi numbers or more: with fewer, torch's product took as long.",
    **FROZEN,
)
def smooth_quantization() -> Program:
    x = torch.randint(-127, 128, (2, 2048), dtype=torch.int8)
    return SmoothQuant(), [x, torch.rand(2, 1)]


row(
    "quantization._register_linear_dynamic_fp16_weight_prepack_pass",
    by="frozen/prepack_linear",
    note="The rounded weights are folded to float32.",
)
row(
    "quantization.quant_lift_up",
    by="frozen/promote_dequantize",
    note="It did nothing for the programs that were tried.",
)
row(
    "quantization.concat_linear_woq_int4",
    note="It did nothing for three products with packed 4-bit weights.",
)
row(
    "mkldnn_fusion.grouped_gemm_pass",
    note="Only with `max_autotune`, for a template that is measured.",
)
