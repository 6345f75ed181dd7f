"""What the passes for quantized graphs make of a small one, and what they leave alone."""

import re
from collections import Counter

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


def convolve(x, numbers=FILTER, transposed=False, zeros=None):
    settings = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)
    return aten.convolution(x, weight(numbers, zeros=zeros), BIAS, *settings)


def shared(x, image):
    y = requantized(x).view(2, 2, 4).permute(1, 0, 2).reshape(4, 4)
    pooled = torch.max_pool2d(requantized(image), 3, 2, 1)
    joined = requantized(torch.cat([requantized(image[:, :, ::2, ::2]), requantized(pooled)], 1))
    return torch.mm(y, X) + torch.addmm(BIAS, y, X), y.sin(), joined.sin(), requantized(y, high=9)


def layers(x, image):
    y = requantized(x)
    other = torch.mm(y, weight(WEIGHT.t().contiguous(), axis=1))
    zeros = torch.addmm(BIAS, y, weight(zeros=WEIGHT[0]).t())
    return torch.addmm(BIAS, y, weight().t()) + other, convolve(requantized(image)), zeros


def behind(x, image):
    y = requantized(torch.addmm(BIAS, requantized(x), weight().t()).relu(), 0.1, 3, 0, 255)
    z = requantized(convolve(requantized(image)).clamp(0.0, 6.0))
    copy = convolve(requantized(image.contiguous())).clone(memory_format=torch.contiguous_format)
    total = torch.mm(requantized(x), weight().t()) + torch.addmm(BIAS, requantized(y), weight().t())
    more = total.relu(), copy.relu(), torch.mm(requantized(x), weight().t()) + x
    return y, torch.nn.functional.gelu(torch.mm(requantized(x), weight().t())), z, *more


def prepacked(function, *inputs):
    """The graph of a function as the passes before leave it."""
    gm = aten_graph(function, *inputs)
    for step in (promote_dequantize.PASS, prepack_quantized.PASS):
        run_pass(gm, step, stage="frozen")
    return gm


LAST = PICTURE.contiguous(memory_format=torch.channels_last)
CASES = [
    (promote_dequantize.PASS, "frozen", lambda: aten_graph(shared, X, PICTURE)),
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
        (lambda x: convolve(requantized(x), zeros=WEIGHT[0]), (PICTURE,), "zero points"),
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


def numbers(x):
    return x.mul(40).round().clamp(-128, 127).to(torch.int8)


def read_as_integers(x):
    y = torch._int_mm(numbers(x), WEIGHT.t())
    return y.float() * 0.5, y


@pytest.mark.parametrize("zero", [-128, -3, 127])
def test_int8_becomes_uint8(zero):
    def program(x):
        return product_of(requantized(x, 0.02, zero, -128, 127, torch.int8))

    def product_of(y):
        return torch.addmm(BIAS, y, weight(WEIGHT // 2).t())

    gm = prepacked(program, X)
    (layer,) = gm.graph.find_nodes(op="call_function", target=onednn.qlinear())
    assert layer.args[0].meta["val"].dtype is torch.uint8
    torch.testing.assert_close(gm(X), program(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "limit", "fires"),
    [
        (lambda x: torch._int_mm(numbers(x), WEIGHT.t()).float() * SCALES, 16, True),
        (lambda x: torch._int_mm(numbers(x), WEIGHT).bfloat16(), 16, True),
        (lambda x: torch._int_mm(numbers(x), WEIGHT).float(), 17, False),
        (lambda x: torch._int_mm(numbers(x), numbers(x)).float(), 16, False),
        (read_as_integers, 16, False),
    ],
)
def test_large_products_of_integers_are_packed(function, limit, fires, monkeypatch):
    monkeypatch.setattr(prepack_quantized, "LARGE", limit)
    gm = aten_graph(function, X)
    fired = bool(rules_of(run_pass(gm, prepack_quantized.PASS, stage="frozen")))
    assert fired == (fires and not onednn.adds_pairs_in_16_bits())
    torch.testing.assert_close(gm(X), function(X), rtol=0, atol=0)


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


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.max_pool2d(requantized(x, 0.1, 0, -64, 63, torch.int8), 2).sin(),
        lambda x: [each.sin() for each in aten.max_pool2d_with_indices(requantized(x), 2)],
        lambda x: torch.max_pool2d(requantized(x.repeat(1, 1, 4, 4)), 2).sin(),  # 400 places
        lambda x: torch.cat([requantized(x), requantized(x, 0.1)]).sin(),
        lambda x: torch.cat([requantized(x), x]).sin(),
        lambda x: requantized(requantized(x), 0.1).sin(),
        lambda x: requantized(requantized(x), zero=3).sin(),
        lambda x: requantized(requantized(x, 1e-35), 1e-35).sin(),
    ],
)
def test_integer_operators_must_not_fire(function):
    assert untouched(function, promote_dequantize.PASS, PICTURE)


def test_integer_operators_are_exact():
    gm = aten_graph(shared, X, PICTURE)
    record = run_pass(gm, promote_dequantize.PASS, stage="frozen")
    assert {"max_pool2d(dequantize) -> dequantize of it", "quantize(dequantize) -> integers"} <= {
        *rules_of(record)
    }
    for result, expected in zip(gm(X, PICTURE), shared(X, PICTURE), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=0)


def residual(x, high=255, function=torch.relu):
    y = requantized(x + 0.1)
    first = requantized(function(convolve(y) + y), 0.1, 3, 0, high)
    return requantized(torch.relu(first + convolve(first)), 0.1, 3, 0, high)


def two_convolutions(x):
    y = requantized(convolve(requantized(x)), high=255)
    return requantized(convolve(requantized(x.sin())) + y)


def twice(x):
    y = requantized(x)
    return requantized(convolve(requantized(x.sin())) + y), y.cos()


def returned(x):
    total = x + convolve(requantized(x.sin()))
    return requantized(total), total


@pytest.mark.parametrize(
    ("function", "sums", "clones"),
    [
        (lambda x: residual(x), 2, 2),  # the convolutions read what they would add into
        (lambda x: residual(x, 99), 2, 2),
        (lambda x: residual(x, function=torch.neg), 1, 1),
        (two_convolutions, 1, 0),
        (twice, 1, 1),
        (lambda x: requantized(convolve(requantized(x)) + x), 0, 0),
        (lambda x: requantized(convolve(requantized(x)) + requantized(LAST)), 0, 0),
        (lambda x: requantized(convolve(requantized(x.sin())).sin() + requantized(x)), 0, 0),
        (returned, 0, 0),
        (
            lambda x: requantized(
                convolve(requantized(x.sin())) + requantized(x, 0.05, 0, -128, 127, torch.int8)
            ),
            0,
            0,
        ),
    ],
)
def test_convolutions_add_into_integers(function, sums, clones):
    gm = prepacked(function, LAST)
    run_pass(gm, fuse_quantized.PASS, stage="frozen", config=EAGER)
    made = Counter(node.target for node in gm.graph.nodes)
    assert made[onednn.qconvolution_sum()] == sums
    assert made[aten.clone.default] == clones
    torch.testing.assert_close(gm(LAST), function(LAST), rtol=1e-5, atol=1e-5)


def sum_with_a_nan(x):
    return (product(x) + x).relu()


def test_relu_behind_a_sum_with_any_number_stays():
    gm = prepacked(sum_with_a_nan, X)
    record = run_pass(gm, fuse_quantized.PASS, stage="frozen", config=EAGER)
    assert rules_of(record) == ["layer + z -> layer"]
    x = X.clone()
    x[0, 0] = float("nan")
    assert torch.equal(gm(x).isnan(), sum_with_a_nan(x).isnan())
