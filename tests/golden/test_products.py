"""Where the passes for matrix products must not fire, and the sizes that they take."""

import pytest
import torch

from ctk.compiler.options.config import Config
from ctk.compiler.passes.post_grad import decompose_products, fuse_addmm, split_products
from tests.helpers.passes import aten_graph, rules_of, run_pass, unchanged

aten = torch.ops.aten
X, Y, B = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
WIDE = torch.randn(4, 8)
EVERY_SPLIT = split_products.SplitProducts(enabled="always")


def rows(x):
    return x.repeat(1250, 1)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y, b: (torch.mm(x, y) + b, torch.mm(x, y)), (X, Y, B)),
        (lambda x, y, b: torch.mm(x, y) + b, (X, Y, torch.randn(3, 4, 4))),  # b broadcasts it
        (lambda x, y, b: torch.mm(x, y) + b, (X, Y, torch.randn(4).double())),
        (lambda x, y, b: torch.mm(x, y) * 1j + b, (X, Y, B)),
        (lambda x, y, b: torch.add(torch.mm(x, y), b, alpha=2), (X, Y, B)),
        (lambda x, y, b: b.t() + torch.mm(x, y), (X, Y, torch.randn(4, 4))),  # b's strides win
        (lambda x, y, b: torch.mm(x, y) + b, (X, torch.randn(4, 1), B)),  # mm is broadcast
        (lambda x, y, b: (lambda p: p + p)(torch.mm(x, y)), (X, Y, B)),  # it would be made twice
    ],
)
def test_fuse_addmm_must_not_fire(function, inputs):
    gm = aten_graph(function, *inputs)
    record = run_pass(gm, fuse_addmm.PASS, stage="forward")
    fused = [n for n in gm.graph.nodes if n.target is aten.addmm.default]
    shared = function(*inputs) if isinstance(function(*inputs), tuple) else None
    assert fused == [] or shared is not None
    assert record.changed == bool(fused)


@pytest.mark.parametrize(
    "bias", [B, B[None], B[:, None], B[0], B[:1], B[None, :1], X], ids=lambda b: str(list(b.shape))
)
def test_fuse_addmm_takes_every_bias(bias):
    for function in (lambda x, y, b: torch.mm(x, y) + b, lambda x, y, b: b + torch.mm(x, y)):
        gm = aten_graph(function, X, Y, bias)
        assert run_pass(gm, fuse_addmm.PASS, stage="forward").changed
        torch.testing.assert_close(gm(X, Y, bias), function(X, Y, bias))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.mm(x[:2], WIDE),  # few rows
        lambda x: torch.mm(rows(x).half(), WIDE.half()),  # 16 bits, on a CPU
        lambda x: torch.mm(rows(x), torch.ones(4, 17)),  # too wide
        lambda x: torch.mm(rows(x), torch.ones(8, 4).t()),  # as a linear layer has its weight
        lambda x: torch.mm(torch.ones(4, 5000).t() * x[0, 0], WIDE),
        lambda x: torch.bmm(x.expand(63, 4, 4), WIDE.expand(63, 4, 8)),  # few matrices
        lambda x: torch.mm(rows(x).int(), WIDE.int()),
    ],
)
def test_decompose_products_must_not_fire(function):
    gm = aten_graph(function, X)
    assert not rules_of(run_pass(gm, decompose_products.PASS, stage="forward", config=Config()))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.mm(rows(x), WIDE).sin(),
        lambda x: torch.addmm(WIDE[0], rows(x), WIDE).sin(),
        lambda x: torch.bmm(x.expand(64, 4, 4), WIDE.expand(64, 4, 8)).sin(),
    ],
)
def test_decompose_products_takes_sizes_that_measured_faster(function):
    gm = aten_graph(function, X)
    eager, c = Config(codegen="eager"), Config(codegen="c")
    assert not rules_of(run_pass(gm, decompose_products.PASS, stage="forward", config=eager))
    assert rules_of(run_pass(gm, decompose_products.PASS, stage="forward", config=c))
    torch.testing.assert_close(gm(X), function(X))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.addmm(x[0], x, x),  # nobody reads it
        lambda x: torch.addmm(x[0], x, x).sum(),  # not element by element
        lambda x: torch.addmm(x[0], x, x, alpha=2).sin(),
        lambda x: torch.bmm(x.expand(2, 4, 4), x.expand(2, 4, 4)).sin(),
    ],
)
def test_split_products_must_not_fire(function):
    assert unchanged(function, EVERY_SPLIT, X, stage="forward")
    assert unchanged(
        lambda x: torch.addmm(x[0], x, x).sin(), split_products.PASS, X, stage="forward"
    )
