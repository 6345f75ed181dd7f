"""The step `drop_effects`: what it drops together, and what it leaves where it is needed."""

from collections.abc import Callable

import pytest
import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.proposal import Subset
from ctk.toolkit.reduce.steps import drop_effects
from tests.helpers.reduce_graphs import FakeOracle, captured, has_ops, op_names

X = torch.linspace(-1, 1, 16).reshape(4, 4)


def program(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        y = x @ x
    y.mul_(2)
    return y.add_(1)


def proposed(case: Case) -> list[list[list[str]]]:
    """Return the ops of each proposal's atoms."""
    nodes = [n for n in case.graph.graph.nodes if n.op.startswith("call")]
    ops = dict(zip((n.name for n in nodes), op_names(case), strict=True))
    proposals = drop_effects.STEP.propose(case, facts_of(case))
    assert all(isinstance(proposal, Subset) for proposal in proposals)
    return [[[ops[name] for name in atom] for atom in proposal.atoms] for proposal in proposals]


def test_switches_that_belong_together_are_one_atom_and_in_place_ops_come_after_them():
    markers, mutators = proposed(captured(program, X))
    assert ["_enter_autocast", "_exit_autocast"] in markers
    assert [op for atom in markers for op in atom].count("_set_grad_enabled") == 2
    assert mutators == [["mul_"], ["add_"]]


def test_a_program_without_effects_has_nothing_to_propose():
    assert proposed(captured(lambda x: x.sin() + 1, X)) == []


@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        (has_ops("matmul"), ["matmul"]),
        (has_ops("matmul", "mul_"), ["matmul", "mul_"]),
        (
            has_ops("matmul", "_enter_autocast"),
            ["_enter_autocast", "matmul", "_exit_autocast"],
        ),
    ],
)
def test_what_the_failure_does_not_need_goes(predicate: Callable[[Case], bool], left: list[str]):
    result = minimize(Problem(captured(program, X), FakeOracle(predicate)), (drop_effects.STEP,))
    assert op_names(result.best) == left
