"""What passes for layouts and oneDNN make of a small frozen graph, and what they leave alone."""

import pytest
import torch

from ctk.compiler.options.config import Config
from ctk.compiler.passes.freezing import (
    fold_binary,
    fuse_post_ops,
    prepack_convolution,
    prepack_linear,
    view_to_reshape,
)
from ctk.compiler.passes.post_grad import to_channels_last
from tests.helpers.passes import aten_graph, rules_of, run_pass

X = torch.randn(4, 4)
aten = torch.ops.aten
W, SCALE = torch.randn(4, 4), torch.rand(4) + 1


def convolve(x, weight, transposed=False):
    return aten.convolution(x, weight, None, [1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)


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


def layer(x):
    return torch.ops.mkldnn._linear_pointwise(x, W, SCALE, "none", [], "")


def convolution_layer(x):
    settings = ([1, 1], [1, 1], [1, 1], 1, "none", [], "")
    return torch.ops.mkldnn._convolution_pointwise(x, FILTER, None, *settings)


def with_post_ops(x, y):
    image = torch.nn.functional.silu(convolution_layer(y)) + convolution_layer(y)
    more = layer(x) * x, x - layer(x), layer(x) - x, torch.nn.functional.gelu(layer(x))
    return image * convolution_layer(y), layer(x).sigmoid(), *more


def reshaped(x):
    y = x.view(16)
    return y.view(2, 8).sin(), y


def post_op_graph():
    return aten_graph(with_post_ops, X, PICTURE.contiguous(memory_format=torch.channels_last))


CASES = [
    (view_to_reshape.PASS, "frozen", lambda: aten_graph(reshaped, X)),
    (to_channels_last.PASS, "frozen", lambda: aten_graph(pictures, PICTURE)),
    (prepack_linear.PASS, "frozen", lambda: aten_graph(products, X)),
    (prepack_convolution.PASS, "frozen", lambda: aten_graph(last, PICTURE)),
    (fuse_post_ops.PASS, "frozen", post_op_graph),
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


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: convolve(x, FILTER), (PICTURE,)),  # its channels are not last
        (lambda x: last(x[:0]), (PICTURE,)),  # nothing to compute
        (lambda x: convolve(channels_last(x), FILTER, transposed=True), (PICTURE,)),
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
