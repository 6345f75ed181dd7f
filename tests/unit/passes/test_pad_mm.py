"""`pad_mm`: which products, what they gain, and that a decision can be replayed."""

import itertools
from dataclasses import replace
from functools import partial

import pytest
import torch

from ctk.compiler.options.config import resolve
from ctk.compiler.passes.joint import pad_mm, products
from ctk.compiler.passes.joint.pad_mm import PadMm
from ctk.compiler.passes.joint.products import Operand, Product
from ctk.repro_templates.numbers.errors import same_numbers
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.trust.ctk_options import is_harmless
from ctk.toolkit.targets import record_decisions
from tests.helpers.passes import aten_graph, rules_of, run_pass
from tests.unit.passes.test_joint_models import rewrites, trained

CPU = {"devices": ("cpu",), "min_flops": 0}
X, Y = torch.randn(3, 5), torch.randn(5, 7)


def product(x, y):
    return torch.mm(x, y).relu()


def ran(step, function=product, inputs=(X, Y)):
    return run_pass(aten_graph(function, *inputs), step)


@pytest.fixture
def gains(monkeypatch):
    """Let every measurement say this number; count them."""
    known, calls = {}, []

    def says(number):
        monkeypatch.setattr(products, "_measure", lambda each, *_: calls.append(each) or number)
        return calls

    monkeypatch.setattr(products, "_MEASURED", known)
    return says


def test_what_was_measured_decides_and_is_measured_once(gains):
    calls = gains(1.3)
    first, second = ran(PadMm(**CPU)), ran(PadMm(**CPU))
    assert len(first.rewrites) == len(second.rewrites) == len(calls) == 1
    (key,) = products.measurements("pad_mm")
    assert first.notes == (f"mm: padded: {key} is 1.30 times as fast when padded, "
                           "pad_mm.min_speedup is 1.1",)  # fmt: skip
    assert not ran(PadMm(**CPU, min_speedup=1.4)).rewrites


def test_a_decision_is_replayed_without_measuring(gains):
    calls = gains(0.5)
    assert not ran(PadMm(**CPU)).rewrites
    (key,) = products.measurements("pad_mm")
    assert ran(PadMm(decisions=(key,))).rewrites
    gains(2.0)
    assert not ran(PadMm(**CPU, decisions=(f"-{key}",))).rewrites
    assert len(calls) == 1


def test_a_case_carries_what_was_decided(gains):
    gains(1.05)
    ran(PadMm(**CPU))
    (key,) = products.measurements("pad_mm")
    case = Case(torch.fx.symbolic_trace(product), (X, Y), config={"pad_mm.min_flops": 0})
    told = record_decisions(case)
    assert told.config == {"pad_mm.min_flops": 0, "pad_mm.decisions": [f"-{key}"]}
    assert record_decisions(told) == told
    assert resolve(told.config).passes["pad_mm"]["decisions"] == (f"-{key}",)
    assert is_harmless("pad_mm.decisions", [key, f"-{key}"])
    looser = replace(case, config={"passes": {"pad_mm": {"min_speedup": 1.0}}})
    assert record_decisions(looser).config["pad_mm.decisions"] == [key]


def test_nothing_is_measured_where_it_cannot_pay(gains):
    calls = gains(9.0)
    (said,) = ran(PadMm()).notes  # which `--why-not pad_mm` and `--times` show
    assert said == "mm: left alone: cpu is not in pad_mm.devices: nothing is measured"
    (said,) = ran(PadMm(devices=("cpu",))).notes
    assert said == "mm: left alone: 210 operations are fewer than pad_mm.min_flops"
    assert not ran(PadMm(enabled="never")).notes
    assert not calls


def test_deterministic_algorithms_are_not_measured(gains):
    calls = gains(9.0)
    torch.use_deterministic_algorithms(True)
    try:
        assert not ran(PadMm(**CPU)).rewrites
    finally:
        torch.use_deterministic_algorithms(False)
    assert not calls


def test_a_measurement_leaves_the_generator_alone():
    operands = (Operand((3, 5), (1, 3)), Operand((5, 7), (7, 1)))
    plain = Product(torch.ops.aten.mm.default, torch.device("cpu"), torch.float32, operands)
    lacking = Product(*_fields(plain), products.lacks(plain, (True,) * 3))
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    padded = partial(pad_mm.padded, lacking)
    assert products.speedup("pad_mm", lacking, padded) > 0
    assert torch.equal(torch.rand(3), expected)


def _fields(each):
    return each.target, each.device, each.dtype, each.operands


@pytest.mark.parametrize(("dynamic", "least"), [(False, 4), (True, 0)])
def test_training_with_padded_products(dynamic, least):
    def program(x, w, b):
        y = torch.addmm(b, x, w).tanh()
        return torch.bmm(y[None].expand(2, *y.shape), w.t()[None].expand(2, *w.t().shape))

    inputs = torch.randn(5, 3), torch.randn(3, 7), torch.randn(7)
    compiled, eager, log = trained(
        program, *inputs, dynamic=dynamic, passes={"pad_mm": {"enabled": "always"}}
    )
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)
    assert len(rewrites(log, "pad_mm")) >= least


def test_what_is_known_of_a_product_with_symbolic_rows_is_padded():
    weight = torch.randn(5, 7)
    gm = aten_graph(lambda x: torch.mm(x, weight), X, tracing_mode="symbolic")
    assert run_pass(gm, PadMm(enabled="always")).rewrites
    for rows in (3, 4, 9):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(gm(x), x @ weight)
        assert gm(x).stride() == (7, 1)


LAYOUTS = (lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x.repeat(1, 2)[:, ::2])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_small_integers_are_multiplied_exactly(dtype):
    """Their sums are exact in any order, so every bit counts, infinities and NaN too."""
    sizes = itertools.product((1, 7), (3, 8), (1, 5))
    for (rows, inner, columns), (one, two) in itertools.product(
        sizes, itertools.product(LAYOUTS, LAYOUTS)
    ):
        a = torch.randint(-3, 4, (rows, inner)).to(dtype)
        b = torch.randint(-3, 4, (inner, columns)).to(dtype)
        a[0, 0], b[-1, -1] = float("inf"), float("nan")
        bias = torch.randint(-3, 4, (columns,)).to(dtype)

        def program(a, b, bias):
            return torch.addmm(bias, a, b, beta=2), torch.mm(a, b).t().neg()

        inputs = one(a), two(b), bias
        gm = aten_graph(program, *inputs)
        run_pass(gm, PadMm(enabled="always"))
        for mine, other in zip(gm(*inputs), program(*inputs), strict=True):
            assert mine.stride() == other.stride()
            assert same_numbers(mine + 0, other + 0)  # a sum may have either zero


def test_rules_are_named_by_operator():
    function = lambda x, y: torch.bmm(x[None], y[None]).sin()  # noqa: E731 (one line)
    assert rules_of(ran(PadMm(enabled="always"), function)) == [
        "bmm(a, b) -> slice(bmm(pad(a), pad(b)))"
    ]
