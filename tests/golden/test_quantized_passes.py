"""What the passes for quantized graphs make of a small one, and what they leave alone."""

import re

import pytest
import torch

from ctk.compiler.options.config import Config
from ctk.compiler.passes.freezing import fuse_quantized, prepack_quantized, promote_dequantize
from ctk.compiler.passes.freezing.fuse_quantized import RULES
from ctk.compiler.patterns.matcher import explain, why_not
from ctk.compiler.torch_compat.inductor import onednn
from tests.helpers.passes import aten_graph, rules_of, run_pass
from tests.helpers.quantized_programs import library, requantized

torch.manual_seed(0)
X, PICTURE = torch.randn(4, 4), torch.randn(1, 4, 5, 5)
WEIGHT = torch.randint(-127, 128, (4, 4), dtype=torch.int8)
FILTER = torch.randint(-127, 128, (4, 4, 3, 3), dtype=torch.int8)
SCALES, BIAS = torch.rand(4) / 10 + 0.01, torch.randn(4)
aten = torch.ops.aten
EAGER = Config(codegen="eager")


def weight(numbers=WEIGHT, scales=SCALES, zeros=None, axis=0):
    settings = (scales, zeros, axis, -127, 127, torch.int8)
    return library.dequantize_per_channel(numbers, *settings)


def convolve(x, numbers=FILTER, transposed=False):
    settings = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)
    return aten.convolution(x, weight(numbers), BIAS, *settings)


def shared(x):
    y = requantized(x).view(2, 2, 4).permute(1, 0, 2).reshape(4, 4)
    return torch.mm(y, X) + torch.addmm(BIAS, y, X), y.sin()


def layers(x, image):
    y = requantized(x)
    other = torch.mm(y, weight(WEIGHT.t().contiguous(), axis=1))
    return torch.addmm(BIAS, y, weight().t()) + other, convolve(requantized(image))


def behind(x, image):
    y = requantized(torch.addmm(BIAS, requantized(x), weight().t()).relu(), 0.1, 3, 0, 255)
    z = requantized(convolve(requantized(image)).clamp(0.0, 6.0))
    return y, torch.nn.functional.gelu(torch.mm(requantized(x), weight().t())), z


def prepacked(function, *inputs):
    """The graph of a function as the passes before leave it."""
    gm = aten_graph(function, *inputs)
    for step in (promote_dequantize.PASS, prepack_quantized.PASS):
        run_pass(gm, step, stage="frozen")
    return gm


LAST = PICTURE.contiguous(memory_format=torch.channels_last)
CASES = [
    (promote_dequantize.PASS, "frozen", lambda: aten_graph(shared, X)),
    (prepack_quantized.PASS, "frozen", lambda: aten_graph(layers, X, PICTURE)),
    (fuse_quantized.PASS, "frozen", lambda: prepacked(behind, X, LAST)),
]
"""A pass, its stage and a graph: golden cases of `test_passes.py`."""


@pytest.mark.parametrize(("function", "image"), [(layers, PICTURE), (behind, LAST)])
def test_the_numbers_are_those_of_eager_within_one_step(function, image):
    gm = prepacked(function, X, image)
    run_pass(gm, fuse_quantized.PASS, stage="frozen", config=EAGER)
    for result, expected in zip(gm(X, image), function(X, image), strict=True):
        assert result.stride() == expected.stride()
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def untouched(function, step, *inputs):
    gm = aten_graph(function, *inputs)
    return rules_of(run_pass(gm, step, stage="frozen")) == []


def leaves(x):
    y = requantized(x)
    return torch.mm(y.view(4, 4), X), y


@pytest.mark.parametrize(
    "function",
    [
        leaves,  # the caller sees that both are one
        lambda x: requantized(x).view(2, 8).sin(),  # no layer reads it
        lambda x: torch.mm(weight().view(4, 4), x),  # one scale for each row
        lambda x: torch.mm(x.view(4, 4), X),
    ],
)
def test_promote_dequantize_must_not_fire(function):
    assert untouched(function, promote_dequantize.PASS, X)


@pytest.mark.parametrize(
    ("function", "inputs", "reason"),
    [
        (lambda x: torch.mm(x, weight().t()), (X,), "the operand x_1 is not dequantized"),
        (lambda x: torch.mm(requantized(x), X), (X,), "the weight .* is not dequantized"),
        (
            lambda x, w: torch.mm(requantized(x), weight(w).t()),
            (X, WEIGHT),
            "is not a constant of int8",
        ),
        (lambda x: torch.mm(requantized(x), weight(zeros=WEIGHT[0]).t()), (X,), "zero points"),
        (lambda x: torch.mm(requantized(x), weight(axis=1).t()), (X,), "not for its outputs"),
        (lambda x: torch.mm(requantized(x, high=255), weight().t()), (X,), "may pass 16 bits"),
        (lambda x: torch.mm(requantized(x), weight(scales=-SCALES).t()), (X,), "not positive"),
        (lambda x: torch.mm(requantized(x), weight(WEIGHT[:1]).t()), (X,), "number of scales"),
        (lambda x: torch.addmm(X, requantized(x), weight().t()), (X,), "is not a row"),
        (lambda x: torch.mm(requantized(x)[:0], weight().t()), (X,), "not dequantized"),
        (lambda x: torch.mm(requantized(x).double(), weight().t().double()), (X,), "float64"),
        (lambda x: convolve(requantized(x), transposed=True), (PICTURE,), "is transposed"),
        (
            lambda x: convolve(requantized(x, 0.1, 0, -64, 63, torch.int8)),
            (PICTURE,),
            "is not of torch.uint8",
        ),
    ],
)
def test_prepack_quantized_must_not_fire(function, inputs, reason, monkeypatch):
    monkeypatch.setattr(onednn, "adds_pairs_in_16_bits", lambda: True)  # as without VNNI
    gm = aten_graph(function, *inputs)
    assert rules_of(run_pass(gm, prepack_quantized.PASS, stage="frozen")) == []
    said = [str(why_not(rule, gm.graph)) for rule in prepack_quantized.RULES.rules]
    assert any(re.search(reason, each) for each in said), said


def test_small_weights_may_meet_any_activation(monkeypatch):
    monkeypatch.setattr(onednn, "adds_pairs_in_16_bits", lambda: True)

    def program(x):
        return torch.mm(requantized(x, 0.02, 128, 0, 255), weight(WEIGHT // 2).t())

    gm = prepacked(program, X)
    assert onednn.qlinear() in {node.target for node in gm.graph.nodes}
    torch.testing.assert_close(gm(X), program(X))


def product(x, bias=BIAS):
    return torch.addmm(bias, requantized(x), weight().t())


def used_twice(x):
    y = product(x)
    return y.relu() + y


@pytest.mark.parametrize(
    ("function", "inputs", "rule", "reason"),
    [
        (lambda x: product(x, BIAS * torch.nan).relu(), (X,), "relu", "NaN"),
        (lambda x, b: product(x, b).relu(), (X, BIAS), "relu", "may be NaN"),
        (used_twice, (X,), "relu", "other users"),
        (lambda x: product(x).sin().relu(), (X,), "relu", "not a layer of integers"),
        (lambda x: convolve(requantized(x)).tanh(), (LAST,), "tanh", "know no tanh"),
        (lambda x: requantized(product(x), -0.5), (X,), "quantize", "the scale is -0.5"),
        (
            lambda x: requantized(product(x), 0.5, 3, -9, 9, torch.int32),
            (X,),
            "quantize",
            "gives no torch.int32",
        ),
    ],
)
def test_fuse_quantized_must_not_fire(function, inputs, rule, reason):
    gm = prepacked(function, *inputs)
    assert rules_of(run_pass(gm, fuse_quantized.PASS, stage="frozen", config=EAGER)) == []
    rules = [each for each in RULES.get().rules if each.name.startswith(rule)]
    said = [str(explain(each, node)) for each in rules for node in gm.graph.nodes]
    assert any(reason in each for each in said), said
