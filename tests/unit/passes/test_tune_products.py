"""`tune_products`: which products, their values, that a decision is replayed, and a fault in it."""

import pytest
import torch

from ctk.compiler.options.config import Config
from ctk.compiler.passes.joint import products
from ctk.compiler.passes.post_grad import tune_products
from ctk.compiler.passes.post_grad.tune_products import TuneProducts
from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.trust.ctk_options import is_harmless
from ctk.toolkit.targets import record_decisions
from tests.helpers.passes import aten_graph, rules_of, run_pass
from tests.unit.passes.test_joint_models import rewrites, trained

ALWAYS = TuneProducts(enabled="always")
SMALL = {"min_flops": 0}
X, Y, B = torch.randn(8, 64), torch.randn(64, 64), torch.randn(64)


def product(x, y):
    return torch.mm(x, y).relu()


def ran(step, function=product, inputs=(X, Y), **options):
    return run_pass(aten_graph(function, *inputs), step, stage="forward", **options)


@pytest.fixture
def gains(monkeypatch):
    """Let every measurement give this number; record the products."""
    measured = []

    def give(number):
        monkeypatch.setattr(products, "_measure", lambda each, *_: measured.append(each) or number)
        return measured

    monkeypatch.setattr(products, "_MEASURED", {})
    return give


FORMS = {
    "rows": (lambda x, y, b: torch.mm(x, y) + 1, (X, Y, B)),
    "linear": (lambda x, y, b: torch.addmm(b, x, y.t()) + 1, (X, Y, B)),
    "gradient of a weight": (lambda x, y, b: torch.mm(x.t(), y) + 1, (X, X, B)),
    "negative dims": (lambda x, y, b: torch.mm(x, y.permute(-1, -2)) + 1, (X, Y, B)),
    "a turned column": (lambda x, y, b: torch.mm(x, y[:, :1]) + 1, (X, Y[:, :1].clone(), B)),
    "specials": (lambda x, y, b: torch.mm(x, y) + 1, (X.where(X < 2, torch.inf), -Y, B)),
}


@pytest.mark.parametrize("name", FORMS)
def test_values_are_those_of_eager(name):
    function, inputs = FORMS[name]
    gm = aten_graph(function, *inputs)
    assert run_pass(gm, ALWAYS, stage="forward").rewrites
    found, expected = gm(*inputs), function(*inputs)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, b: torch.mm(x.double(), y.double()),
        lambda x, y, b: torch.mm(x[:3], y),  # few rows
        lambda x, y, b: torch.mm(y[:, :8].t(), y),  # a part of a larger matrix
        lambda x, y, b: torch.mm(x, y[:, ::2]),
        lambda x, y, b: torch.mm(x, b[:, None].expand(64, 64)),
        lambda x, y, b: torch.mm(y.t(), y[:, :8].clone()),  # a copy for few columns
        lambda x, y, b: torch.addmm(y, y, y),
        lambda x, y, b: torch.addmm(b[:1], x, y),
        lambda x, y, b: torch.addmm(y[:, 0], x, y),  # a row with gaps
        lambda x, y, b: torch.addmm(b[:1].expand(64), x, y),
        lambda x, y, b: torch.addmm(b, x, y, beta=2),
        lambda x, y, b: torch.mm(x.int(), y.int()),
        lambda x, y, b: torch.mm(x[:, :0], y[:0]),
    ],
)
def test_must_not_fire(function):
    assert not rules_of(ran(ALWAYS, function, (X, Y, B)))


def test_one_sample_decides_for_large_products_of_float32(gains):
    measured = gains(2.0)
    small = ran(TuneProducts())
    assert small.notes == (
        "mm: left alone: 65536 operations are fewer than tune_products.min_flops",
    )
    for inputs in ((X, Y), (Y, Y)):
        assert ran(TuneProducts(**SMALL), inputs=inputs).rewrites
    assert [each.sizes for each in measured] == [(128, 256, 256)]
    halves = ran(TuneProducts(**SMALL), lambda x, y: torch.mm(x.half(), y.half()))
    assert not halves.rewrites
    assert not ran(TuneProducts(**SMALL, min_speedup=2.1)).rewrites


def test_tune_measures_each_product_within_a_budget(gains):
    measured = gains(1.3)
    step = TuneProducts(enabled="tune", **SMALL)
    assert ran(step).rewrites and ran(step).rewrites
    assert [each.sizes for each in measured] == [(8, 64, 64)]
    late = TuneProducts(enabled="tune", **SMALL, budget_seconds=-1.0)
    assert ran(late, inputs=(Y, Y)).rewrites
    assert [each.sizes for each in measured] == [(8, 64, 64), (128, 256, 256)]


def test_a_case_carries_the_decisions(gains):
    gains(1.05)
    ran(TuneProducts(enabled="tune", **SMALL))
    (key,) = products.measurements("tune_products")
    told = record_decisions(Case(torch.fx.symbolic_trace(product), (X, Y)))
    assert told.config == {"tune_products.decisions": [f"-{key}"]}
    assert is_harmless("tune_products.decisions", [key]) and is_harmless(
        "tune_products.enabled", "tune"
    )
    gains(9.0)
    assert not ran(TuneProducts(**SMALL, decisions=(f"-{key}",))).rewrites
    assert ran(TuneProducts(decisions=(key,))).rewrites


def test_a_case_carries_the_decision_on_all_products(gains):
    gains(1.05)
    ran(TuneProducts(**SMALL))
    told = record_decisions(Case(torch.fx.symbolic_trace(product), (X, Y)))
    measured = gains(9.0)
    products._MEASURED.clear()
    assert not ran(TuneProducts(**SMALL, decisions=told.config["tune_products.decisions"])).rewrites
    assert len(measured) == 1


def test_measurements_of_this_machine_end_and_leave_the_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    ran(TuneProducts(enabled="tune", **SMALL))
    assert products.measurements("tune_products")
    assert torch.equal(torch.rand(3), expected)


def test_nothing_is_measured_under_deterministic_algorithms(gains):
    measured = gains(9.0)
    torch.use_deterministic_algorithms(True)
    try:
        assert not ran(TuneProducts(**SMALL)).rewrites
    finally:
        torch.use_deterministic_algorithms(False)
    assert not measured


def test_freezing_leaves_products_to_be_packed():
    assert not ran(ALWAYS, config=Config(freezing=True)).rewrites


@pytest.mark.parametrize("dynamic", [False, True])
def test_training(dynamic):
    def program(x, w, b):
        return torch.addmm(b, x, w).tanh()

    compiled, eager, log = trained(
        program, X, Y, B, dynamic=dynamic, passes={"tune_products": {"enabled": "always"}}
    )
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4)
    assert len(rewrites(log, "tune_products")) == 3  # forward, gradients of x and of w


def test_a_wrong_product_is_named(monkeypatch):
    """The second factor is taken as it is, not transposed."""
    compute = tune_products._compute

    def wrong(rewriter, node):
        made = compute(rewriter, node)
        if node.args[0].op == "placeholder":
            made.args = (made.args[0], node.args[1], *made.args[2:])
        return made

    monkeypatch.setattr(tune_products, "_compute", wrong)
    graph = torch.fx.symbolic_trace(lambda x, y: torch.mm(torch.mm(x, y).relu(), y))
    culprit = find_culprit(Case(graph, (X, Y), config={"tune_products.enabled": "always"})).culprit
    assert (culprit.stage, culprit.name) == ("forward", "tune_products")
    assert culprit.rewrites_in_pass == 2 and culprit.rule == "mm(x, w) -> linear"
