"""Where operators must stay; and that no more memory is ever alive at once."""

import pytest
import torch
from hypothesis import given, settings

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.passes.post_grad import order_for_locality
from tests.helpers.liveness import peak_nbytes
from tests.helpers.pass_programs import Program, programs
from tests.helpers.passes import aten_graph, rules_of, run_pass

X, Y = torch.randn(4, 4), torch.randn(4, 4)


def read_before_write(x, y):
    old = x.neg()
    x.add_(y)
    return x.sin() * old


def read_after_write(x, y):
    x.add_(y)
    return x.neg().sin()


def drawn_first(x, y):
    first = torch.rand_like(x)
    second = torch.rand_like(x)
    return second.sin() * first


def shrinks(x, y):
    total = (x * 2).sum()
    return (y.sin() + y.cos()) * total  # x * 2 would live longer


def big_for_small(x, y):
    row = (x * 2)[0] + 1
    return y.sin().exp() * row


def in_a_branch(x, y):
    early = x.neg()
    z = torch.cond(y.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,))
    return z * early


@pytest.mark.parametrize(
    "function",
    [
        read_before_write,
        read_after_write,
        drawn_first,
        shrinks,
        lambda x, y: (x.sin(), y.cos()),
        lambda x, y: (x.sin() + y.cos()) * x,  # in order as they are
        lambda x, y: x.split(2)[0].sin(),
        in_a_branch,  # a branch may have an effect
    ],
)
def test_order_for_locality_must_not_fire(function):
    gm = aten_graph(function, X.clone(), Y)
    record = run_pass(gm, order_for_locality.PASS, stage="forward")
    assert rules_of(record) == []


def early_constants(x, y):
    ones = [torch.full((64, 64), float(n)) for n in range(8)]
    for each in ones:
        x = (x @ y).tanh() + each
    return x


def test_the_peak_falls():
    gm = aten_graph(early_constants, torch.randn(64, 64), torch.randn(64, 64))
    before = peak_nbytes(gm)
    run_pass(gm, order_for_locality.PASS, stage="forward")
    assert before - peak_nbytes(gm) == 7 * 64 * 64 * 4


def gradients(primals, tangents):
    """The backward of a chain of products, which it computes again."""
    products = [primals[0]]
    for each in primals[1:-1]:
        products.append(products[-1] * each)
    results = []
    for product, each in zip(reversed(products), reversed(primals), strict=False):
        results.append(tangents * product)
        tangents = tangents * each
    return results[::-1]


def test_a_refused_operand_is_asked_for_a_few_times(monkeypatch):
    asked: list[object] = []
    saves = order_for_locality._Moving.saves

    def counted(moving, node, front):
        asked.append(node)
        return saves(moving, node, front)

    monkeypatch.setattr(order_for_locality._Moving, "saves", counted)
    gm = aten_graph(gradients, [X.clone() for _ in range(25)], Y)
    run_pass(gm, order_for_locality.PASS, stage="forward")
    assert len(asked) < 10 * len(gm.graph.nodes)


@pytest.mark.parametrize("count", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_the_peak_never_grows(count):
    def check(program: Program) -> None:
        gm = program.graph()
        after = copy_graph_module(gm)
        run_pass(after, order_for_locality.PASS, stage="forward")
        assert peak_nbytes(after) <= peak_nbytes(gm)

    drawn = given(program=programs())(check)
    settings(derandomize=True, deadline=None, max_examples=count)(drawn)()
