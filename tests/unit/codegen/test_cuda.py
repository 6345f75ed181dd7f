"""TorchScript code generation on a GPU, where TorchScript fuses: layout, values, random numbers."""

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.torchscript.torchscript_codegen import ts_compile
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.clone import layout
from tests.helpers.codegen_graphs import (
    RUNS,
    assert_like_eager,
    functional,
    module_graph,
    training_graph,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def pointwise(x):
    y = (x.sigmoid() * x + 1).tanh()
    return y, y.t(), (y.t() * 2).relu(), x.t().exp().sin() * x.t()


def mixed(x):
    return nn.functional.gelu(x.float().softmax(-1).to(x.dtype) * x) + x.abs().sqrt()


def dropped(x):
    return nn.functional.dropout(x, 0.5) * 2 + 1, torch.rand_like(x) * x


@pytest.mark.parametrize("fn", [pointwise, mixed, dropped])
def test_fused_functions(fn) -> None:
    x = torch.randn(8, 6, device="cuda")
    assert_like_eager(functional(fn, x), [x])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fn", [pointwise, mixed])
def test_fused_functions_are_no_worse_than_eager(fn, dtype: torch.dtype) -> None:
    """A fused kernel rounds once where eager rounds after each op: compare with float64."""
    x = torch.randn(8, 6, device="cuda", dtype=dtype)
    gm = functional(fn, x)
    compiled = ts_compile(gm, [x])
    for _ in range(RUNS):
        results = compiled([x])
    exact = fn(x.double())
    results, eager, exact = (
        (value,) if isinstance(value, torch.Tensor) else value for value in (results, gm(x), exact)
    )
    for got, wanted, reference in zip(results, eager, exact, strict=True):
        assert layout(got) == layout(wanted)
        own_error = (wanted - reference).abs().max()
        slack = torch.finfo(dtype).eps * reference.abs().max()
        assert (got - reference).abs().max() <= own_error + slack


def test_fused_functions_with_changing_shapes() -> None:
    def fn(x):
        y = (x.sigmoid() * x + x.shape[0]).tanh()
        return y, y.sum(0), y.t() + 1

    batches = [[torch.randn(size, 5, device="cuda")] for size in (4, 2, 9, 1)]
    assert_like_eager(functional(fn, *batches[0], symbolic=True), *batches)


def test_channels_last() -> None:
    x = torch.randn(2, 3, 6, 6, device="cuda").to(memory_format=torch.channels_last)

    def fn(x):
        return (x.sigmoid() * x + 1).relu(), (x * 2).sin() + x.contiguous()

    assert_like_eager(functional(fn, x), [x])


def test_mutation() -> None:
    def fn(x):
        x.mul_(2).add_(1)
        return x.sin() + x

    x = torch.randn(3, 3, device="cuda")
    assert_like_eager(functional(fn, x), [x])


@pytest.mark.parametrize("training", [False, True])
def test_encoder(training: bool) -> None:
    module = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True).cuda()
    x = torch.randn(2, 5, 16, device="cuda")
    gm, inputs = module_graph(module.train(training), x)
    assert_like_eager(gm, inputs)


def test_encoder_backward() -> None:
    module = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True).cuda()
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        gm, inputs = training_graph(module, torch.randn(2, 5, 16, device="cuda"))
    assert_like_eager(gm, inputs)


def test_undefined_tensor_is_refused() -> None:
    """This op's schema says Tensor where the graph passes None; TorchScript is strict there."""
    module = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).cuda()
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        gm, inputs = training_graph(module, torch.randn(2, 5, 16, device="cuda"))
    with pytest.raises(CodegenUnsupported, match="'attn_bias' but instead found type 'NoneType'"):
        ts_compile(gm, inputs)


def test_frozen_convolution() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).cuda().eval()
    x = torch.randn(2, 3, 6, 6, device="cuda")
    with torch.no_grad():
        gm = make_fx(module)(x)
    assert_like_eager(gm, [x])
