"""Loops of candidates: their rounds are counted, and one that does not end is refused."""

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import ctk
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution import limited_rounds
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.execution.limited_rounds import Endless, Rounds
from ctk.toolkit.reduce.analysis import facts_of

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def looping(rounds: int) -> GraphModule:
    def program(x: torch.Tensor) -> torch.Tensor:
        def condition(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return i < rounds

        def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, (x * 2).sin().tanh()

        return while_loop(condition, body, (torch.tensor(0), x))[1].relu()

    return make_fx(program)(X)


def tanh_inside(gm: GraphModule, inputs: tuple[object, ...]) -> bool:
    inner = [each for each in gm.modules() if isinstance(each, GraphModule) and each is not gm]
    return any("tanh" in str(node.target) for each in inner for node in each.graph.nodes)


def test_rounds_are_counted_and_limited():
    case, rounds = Case(looping(5), (X,), target="eager"), Rounds()
    with rounds.count_calls():
        assert run_eager(case).error is None
        facts_of(case)
        assert rounds.most >= 11  # six conditions, five bodies, and what the operator tries itself
        rounds.limit = 10
        assert isinstance(run_eager(case).error, Endless)
        with pytest.raises(Endless):
            facts_of(case)
    assert run_eager(case).error is None


def test_the_given_program_may_take_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limited_rounds, "LEAST_LIMIT", 10)
    found = ctk.minimize(looping(40), [X], tanh_inside)
    assert found.finished


def test_it_is_refused_also_where_the_given_program_raises():
    gm = looping(3)
    x, *_, output = gm.graph.nodes
    with gm.graph.inserting_before(output):
        raising = gm.graph.call_function(torch.linalg.cholesky, (x,))
    output.args = ((output.args[0], raising),)
    gm.recompile()

    def fails(gm: GraphModule, inputs: tuple[object, ...]) -> bool:
        has_cholesky = any(node.target is torch.linalg.cholesky for node in gm.graph.nodes)
        return has_cholesky and tanh_inside(gm, inputs)

    found = ctk.minimize(gm, [torch.zeros(3, 3)], fails)
    assert found.finished and not found.problems
    assert any(each.why == "eager raises" for each in found.certificate)


def test_a_loop_that_lost_its_counter_is_refused():
    def fails(gm: GraphModule, inputs: tuple[object, ...]) -> bool:
        gm(*inputs)  # it would hang
        return tanh_inside(gm, inputs)

    found = ctk.minimize(looping(3), [X], fails)
    assert found.finished
    found.graph(*found.inputs)  # it ends
    (body,) = (m for n, m in found.graph.named_modules() if "body" in n)
    assert sorted(str(n.target) for n in body.graph.nodes if n.op == "call_function") == [
        "aten.add.Tensor",
        "aten.tanh.default",
    ]
    assert any(each.why == "eager raises" for each in found.certificate)
