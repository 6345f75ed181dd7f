"""Each play of a program begins where the first began, and eager is eager."""

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

import ctk
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.layers import ask
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.importers.in_memory import program_of


def asked(function: object, *inputs: object, backward: bool = False) -> EndToEnd:
    program = program_of(function, list(inputs))  # type: ignore[arg-type]  # any callable
    return ask(ProgramQuestion(program, "aot_eager", backward=backward))


def test_gradients_of_a_closures_weights_are_put_back() -> None:
    cell = nn.GRUCell(3, 3)

    def run(x: Tensor) -> Tensor:
        hidden = torch.zeros(2, 3)
        for step in x:
            hidden = cell(step, hidden)
        return hidden

    cell.bias_hh.grad = torch.ones(9)
    found = asked(run, torch.randn(4, 2, 3), backward=True)
    assert found.judgement.verdict is Verdict.PASSES, found
    assert cell.weight_ih.grad is None
    assert torch.equal(cell.bias_hh.grad, torch.ones(9))


def test_an_optimizer_and_its_scheduler_are_put_back() -> None:
    model = nn.Linear(3, 2)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(adam, 1)
    before = model.weight.detach().clone()

    def step(x: Tensor) -> Tensor:
        adam.zero_grad()
        model(x).square().sum().backward()
        adam.step()
        schedule.step()
        return model(x)

    found = asked(step, torch.randn(4, 3))
    assert found.judgement.verdict is Verdict.PASSES, found
    assert torch.equal(model.weight, before)
    assert not adam.state
    assert adam.param_groups[0]["lr"] == 0.1


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo reads it
def test_a_leaf_that_the_program_freezes_is_thawed() -> None:
    model = nn.Linear(3, 2)

    def run(x: Tensor) -> Tensor:
        out = model(x)
        model.weight.requires_grad_(False)
        return out

    found = asked(run, torch.randn(4, 3))
    assert found.judgement.verdict is Verdict.PASSES, found
    assert model.weight.requires_grad


def test_operators_that_compile_for_themselves_run_in_eager() -> None:
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)

    def gate(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: a(x), lambda x: b(x), (x,))

    found = asked(gate, torch.randn(2, 3), backward=True)
    assert found.judgement.verdict is Verdict.PASSES, found


def test_a_program_without_a_graph_has_no_answer() -> None:
    report = ctk.check(nn.LSTM(3, 2).eval(), (torch.randn(4, 2, 3),), target="ctk")
    assert report.judgement.verdict is Verdict.INVALID
    assert str(report).startswith("cannot tell: nothing was compiled: Dynamo captured no graph")


def test_values_inside_vmap_are_not_compared() -> None:
    dots = torch.func.vmap(torch.dot)
    report = ctk.check(dots, (torch.randn(4, 3), torch.randn(4, 3)), target="ctk")
    assert report.ok, report


def test_what_torch_compile_keeps_is_not_the_programs() -> None:
    """Its wrapper bears the name of the user's function, and names the stance that we set."""
    inner = torch.compile(lambda x: x.relu() + 1, backend="eager")
    found = asked(lambda x: inner(x * 2).sum(0) - inner(x).mean(), torch.randn(4, 3))
    assert found.judgement.verdict is Verdict.PASSES, found


def merge_draws(gm: GraphModule) -> None:
    first, *others = (n for n in gm.graph.nodes if n.target is torch.ops.aten.rand_like.default)
    for node in others:
        node.replace_all_uses_with(first)
        gm.graph.erase_node(node)


def test_a_graph_that_draws_fewer_numbers_has_its_wrong_step_named() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return torch.rand_like(x) - torch.rand_like(x)

    config = {"custom_passes": {"joint": [merge_draws]}}
    report = ctk.check(run, (torch.ones(6),), target="ctk", config=config)
    assert str(report).endswith(
        "graph0 alone is 'flaky', but joint/merge_draws makes a value wrong"
    )
