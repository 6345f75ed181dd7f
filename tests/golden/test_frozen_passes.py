"""What passes for layouts and oneDNN make of a small frozen graph, and what they leave alone."""

import pytest
import torch

from ctk.compiler.options.config import Config
from ctk.compiler.passes.freezing import (
    fold_binary,
    fuse_post_ops,
    prepack_convolution,
    prepack_linear,
    prepack_recurrent,
    recover_linear,
    view_to_reshape,
    weight_only,
)
from ctk.compiler.passes.joint import to_channels_last
from tests.helpers.passes import aten_graph, rules_of, run_pass

X = torch.randn(4, 4)
aten = torch.ops.aten
W, SCALE = torch.randn(4, 4), torch.rand(4) + 1


def convolve(x, weight, transposed=False):
    return aten.convolution(x, weight, None, [1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)


def padded_more_than_strided(x):
    y = channels_last(x)
    return aten.convolution(y, FILTER, None, [1, 1], [1, 1], [2, 2], True, [1, 1], 1)


PICTURE, FILTER = torch.randn(2, 4, 5, 5), torch.randn(4, 4, 3, 3)


def pictures(x):
    shown = convolve(x, FILTER).relu()
    y = torch.max_pool2d(convolve(shown, FILTER.neg()), 2)
    return shown.view(2, 100), y.reshape(2, -1).sin(), convolve(x, FILTER).sum((2, 3))


def products(x):
    rows = torch.addmm(SCALE, x.view(16, 1).expand(16, 4).reshape(4, 4, 4).view(16, 4), W)
    return torch.mm(x, W).relu(), rows.view(4, 4, 4)


def last(x):
    """A convolution between tensors with channels last."""
    return convolve(x.contiguous(memory_format=torch.channels_last), FILTER)


def convolutions(x):
    """One between tensors with channels last, a transposed one, and one with channels first."""
    y = convolve(x.contiguous(memory_format=torch.channels_last), FILTER, transposed=True)
    return last(x), y, convolve(x, FILTER)


TIMES = [torch.randn(16, size) for size in (4, 4)]


def recurrent(x):
    state = torch.zeros(2, 4)
    settings = (False, [], 2, 4, 1, True, False, False, False)
    layer = torch.ops.aten.mkldnn_rnn_layer
    return layer(x, *TIMES, TIMES[0][:, 0], TIMES[1][:, 0], state, state, *settings)[:3]


def batches(x):
    y = x.view(2, 2, -1)
    return aten.bmm(y, W.expand(2, *W.shape)), torch.matmul(y.transpose(0, 1), W)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, w: aten.bmm(x.view(2, 2, -1), w.expand(2, *w.shape)), (X, W)),  # no constant
        (lambda x: aten.bmm(x.view(2, 2, -1), torch.stack([W, -W])), (X,)),  # two matrices
        (lambda x: aten.bmm(x.view(2, 2, -1)[:0], W.expand(0, *W.shape)), (X,)),
        (lambda x: aten.bmm(x.view(1, 4, -1).cfloat(), W[None].cfloat()), (X,)),
    ],
)
def test_recover_linear_must_not_fire(function, inputs):
    assert unchanged(function, recover_linear.PASS, *inputs)


BYTES = torch.randint(-127, 128, (16, 32), dtype=torch.int8)
COLUMN, ROWS = torch.rand(16, 1) / 99, torch.randn(3, 32)


def weight_only_products(x):
    half = x.to(torch.bfloat16)
    scaled = BYTES.to(torch.bfloat16) * COLUMN.to(torch.bfloat16)
    first = torch.addmm(half[0, :16], half, scaled.t()) + torch.mm(half, BYTES.to(half.dtype).t())
    return first, torch.addmm(x[0, :16], x, (BYTES.to(x.dtype) * COLUMN).t())


def layer(x):
    settings = (W.to(x.dtype), SCALE.to(x.dtype), "none", [], "")
    return torch.ops.mkldnn._linear_pointwise(x, *settings)


def convolution_layer(x):
    settings = ([1, 1], [1, 1], [1, 1], 1, "none", [], "")
    return torch.ops.mkldnn._convolution_pointwise(x, FILTER, None, *settings)


def transposed_layer(x):
    settings = ([1, 1], [0, 0], [1, 1], [1, 1], 1, "none", [], "")
    return torch.ops.mkldnn._convolution_transpose_pointwise(x, FILTER, None, *settings)


def with_post_ops(x, y):
    image = torch.nn.functional.silu(convolution_layer(y)) + convolution_layer(y)
    more = layer(x) * x, x - layer(x), layer(x) - x, torch.nn.functional.gelu(layer(x))
    copy = convolution_layer(y).clone(memory_format=torch.contiguous_format).sigmoid()
    scaled = convolution_layer(y) * y.mean((2, 3), keepdim=True)
    half = torch.nn.functional.hardswish(layer(x.bfloat16()))
    return image * convolution_layer(y), layer(x).sigmoid(), *more, copy, scaled, half


def reshaped(x):
    y = x.view(16)
    return y.view(2, 8).sin(), y


def post_op_graph():
    return aten_graph(with_post_ops, X, PICTURE.contiguous(memory_format=torch.channels_last))


CASES = [
    (recover_linear.PASS, "frozen", lambda: aten_graph(batches, X)),
    (view_to_reshape.PASS, "frozen", lambda: aten_graph(reshaped, X)),
    (to_channels_last.PASS, "frozen", lambda: aten_graph(pictures, PICTURE)),
    (prepack_linear.PASS, "frozen", lambda: aten_graph(products, X)),
    (prepack_convolution.PASS, "frozen", lambda: aten_graph(convolutions, PICTURE)),
    (prepack_recurrent.PASS, "frozen", lambda: aten_graph(recurrent, PICTURE[0, :3, :2, :4])),
    (fuse_post_ops.PASS, "frozen", post_op_graph),
    (weight_only.PASS, "frozen", lambda: aten_graph(weight_only_products, ROWS)),
]
"""A pass, its stage and a graph: golden cases of `test_passes.py`."""


def unchanged(function, step, *inputs, stage="frozen"):
    gm = aten_graph(function, *inputs)
    record = run_pass(gm, step, stage=stage)
    return rules_of(record) == [] and not record.changed


def test_view_to_reshape_keeps_views_that_are_written_to():
    def program(x):
        y = x.clone()
        y.view(16).add_(1)
        return y.sin()

    assert unchanged(program, view_to_reshape.PASS, X, stage="frozen")


def writes_to_pictures(x):
    y = convolve(x, FILTER)
    y.add_(1)
    return y.sum((2, 3))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: (convolve(x, FILTER), convolve(x, FILTER).relu()), (PICTURE,)),  # as many copies
        (lambda x: convolve(x, FILTER).as_strided((4,), (1,)).sin(), (PICTURE,)),
        (lambda x: torch.rand_like(convolve(x, FILTER)), (PICTURE,)),
        (lambda x: convolve(x.to(torch.complex64), FILTER.to(torch.complex64)).sum(), (PICTURE,)),
        (lambda x: convolve(x, FILTER), (PICTURE.contiguous(memory_format=torch.channels_last),)),
        (writes_to_pictures, (PICTURE,)),
    ],
)
def test_to_channels_last_must_not_fire(function, inputs):
    assert unchanged(function, to_channels_last.PASS, *inputs, stage="frozen")


def test_to_channels_last_leaves_symbolic_sizes_alone():
    gm = aten_graph(lambda x: convolve(x, FILTER).sum((2, 3)), PICTURE, tracing_mode="symbolic")
    assert not run_pass(gm, to_channels_last.PASS, stage="frozen").changed


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, w: torch.mm(x, w), (X, W)),  # the weight is no constant
        (lambda x: torch.mm(W, W) + x, (X,)),  # all is constant
        (lambda x, b: torch.addmm(b, x, W), (X, torch.randn(4, 1))),  # b is no row
        (lambda x: torch.addmm(SCALE, x, W, alpha=2), (X,)),
        (lambda x: torch.mm(x.double(), W.double()), (X,)),  # not oneDNN's
        (lambda x: torch.mm(x[:0], W), (X,)),  # nothing to compute
        (lambda x: torch.mm(x.to(torch.int64), W.to(torch.int64)), (X,)),
    ],
)
def test_prepack_linear_must_not_fire(function, inputs):
    assert unchanged(function, prepack_linear.PASS, *inputs, stage="frozen")


def test_prepack_linear_copies_operands_with_gaps_or_overlaps():
    weight, bias = torch.ones(1, 4).expand(4, 4), torch.arange(8.0)[::2]
    gm = aten_graph(lambda x: torch.addmm(bias, x, weight), X)
    run_pass(gm, prepack_linear.PASS, stage="frozen")
    torch.testing.assert_close(gm(X), torch.addmm(bias, X, weight))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: convolve(x, FILTER), (torch.randn(2, 4, 30, 30),)),  # a large copy
        (lambda x: convolve(x, FILTER[:1, :1, :1, :1]), (PICTURE[:, :1],)),  # any format
        (lambda x: last(x[:0]), (PICTURE,)),  # nothing to compute
        (padded_more_than_strided, (PICTURE,)),
        (lambda x: convolve(channels_last(x.double()), FILTER.double()), (PICTURE,)),
        (lambda x, w: convolve(channels_last(x), w), (PICTURE, FILTER)),  # no constant
    ],
)
def test_prepack_convolution_must_not_fire(function, inputs):
    assert unchanged(function, prepack_convolution.PASS, *inputs, stage="frozen")


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


def shared_layer(x):
    y = layer(x)
    return y.sigmoid() + y


@pytest.mark.parametrize(
    "function",
    [
        lambda x: layer(x).relu(),  # oneDNN makes 0 of a NaN
        lambda x: layer(x).t().clone().sigmoid(),  # no copy of it alone
        lambda x: torch.nn.functional.hardtanh(layer(x)),
        lambda x: layer(x) + x[0],  # broadcasts
        lambda x: layer(x) + x.t(),  # has other strides
        lambda x: layer(x) + 1,
        lambda x: torch.add(layer(x), x, alpha=2),
        lambda x: layer(x).double() + x,
        lambda x: (y := layer(x)) * y,
        lambda x: layer(x).sin(),
        shared_layer,
    ],
)
def test_fuse_post_ops_must_not_fire(function):
    assert unchanged(function, fuse_post_ops.PASS, X, stage="frozen")


def test_fuse_post_ops_leaves_alone_what_torchscript_cannot_take():
    gm = aten_graph(lambda x: torch.nn.functional.leaky_relu(layer(x)), X)
    record = run_pass(gm, fuse_post_ops.PASS, stage="frozen", config=Config(codegen="torchscript"))
    assert not record.changed


def test_fuse_post_ops_takes_relu_where_nan_does_not_count():
    gm = aten_graph(lambda x: torch.nn.functional.hardtanh(layer(layer(x).relu())), X)
    step, config = fuse_post_ops.FusePostOps(exact_nan=False), Config(codegen="eager")
    record = run_pass(gm, step, stage="frozen", config=config)
    assert len(rules_of(record)) == 2
    expected = torch.nn.functional.hardtanh(layer(layer(X).relu()))
    torch.testing.assert_close(gm(X), expected)


def normed(x):
    return aten._native_batch_norm_legit_no_training(x, None, None, SCALE, SCALE, 0.1, 0.1)[0]


def shared_binary(x):
    y = torch.mm(x, W)
    return y * 2 + y


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, w: torch.mm(x, w) * 2, (X, W)),  # the weight is no constant
        (lambda x, b: torch.addmm(b, x, W) * 2, (X, torch.randn(4))),  # nor is the bias
        (lambda x, c: torch.mm(x, W) * c, (X, SCALE)),
        (shared_binary, (X,)),
        (lambda x: torch.mm(x, W) * 0, (X,)),
        (lambda x: torch.mm(x, W) / 0.0, (X,)),
        (lambda x: torch.mm(x, W) * 2.0**30, (X,)),  # weights might overflow
        (lambda x: torch.addmm(SCALE, x, W) - float("inf"), (X,)),
        (lambda x: torch.mm(x, W) * SCALE[:, None], (X,)),  # along the rows
        (lambda x: torch.mm(x, W) * SCALE.double(), (X,)),  # promotes
        (lambda x: torch.mm(x.half(), W.half()) * 3, (X,)),  # weights would be rounded
        (lambda x: torch.mm(x, W) * SCALE.view(1, 1, 4), (X,)),  # a dimension more
        (lambda x: 1 / torch.mm(x, W), (X,)),
        (lambda x: torch.add(torch.addmm(SCALE, x, W), SCALE, alpha=2), (X,)),
        (lambda x: W * torch.mm(x, W), (X,)),  # a number for each element
        (lambda x: torch.mm(x, W).view(2, 2, 4) * W.view(2, 2, 4), (X,)),  # the same, seen so
        (lambda x: torch.mm(x, W).view(8, 2) * 2, (X,)),  # splits channels
        (lambda x: torch.mm(x, W).t().view(2, 2, 4) * SCALE, (X,)),  # along the rows
        (lambda x: normed(torch.mm(x, W)), (X,)),  # another pass's
    ],
)
def test_fold_binary_must_not_fire(function, inputs):
    assert unchanged(function, fold_binary.PASS, *inputs, stage="frozen")


def test_weight_only_products_are_those_of_eager():
    gm = aten_graph(weight_only_products, ROWS)
    record = run_pass(gm, weight_only.PASS, stage="frozen", config=Config(codegen="eager"))
    assert len(rules_of(record)) == 3
    for result, expected in zip(gm(ROWS), weight_only_products(ROWS), strict=True):
        rtol = 2e-2 if expected.dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(result, expected, rtol=rtol, atol=rtol * 10)


def many_rows(x):
    return torch.mm(x.expand(20, 3, 32).reshape(60, 32), BYTES.to(x.dtype).t())


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (many_rows, (ROWS,)),
        (lambda x, w: torch.mm(x, w.to(x.dtype).t()), (ROWS, BYTES)),  # no constant
        (lambda x: torch.mm(x, BYTES.to(x.dtype).view(32, 16)), (ROWS,)),  # no view of numbers
        (lambda x: torch.mm(x.double(), BYTES.double().t()), (ROWS,)),
        (lambda x: torch.mm(x, BYTES.float().cos().t()), (ROWS,)),  # no dequantization
        (lambda x: torch.mm(x[:0], BYTES.to(x.dtype).t()), (ROWS,)),
        (lambda x: torch.mm(x, COLUMN.t().expand(32, 16)), (ROWS,)),
    ],
)
def test_weight_only_must_not_fire(function, inputs):
    assert unchanged(function, weight_only.PASS, *inputs)
