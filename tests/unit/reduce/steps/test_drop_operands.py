"""drop_operands: what no sub-graph of a call reads goes, in all of them and in the call."""

import torch
from torch.utils.checkpoint import checkpoint

from ctk.compiler.fx.walk import placeholders
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.steps.drop_operands import STEP, DropOperands
from ctk.toolkit.reduce.subgraphs import subgraphs
from tests.helpers.reduce_graphs import FakeOracle, captured, has_ops, unread_operand
from tests.helpers.reduce_steps import X, edits, proposals

Y = X + 1


def test_an_operand_that_no_branch_reads_goes_everywhere():
    case = unread_operand()
    found = proposals(STEP, case)
    (call,) = {body.call for body in subgraphs(case.graph)}
    (edit,) = edits(found[0])
    assert isinstance(edit, DropOperands) and [name for name, _ in edit.places] == [call]
    result = edit.apply(case, facts_of(case))
    assert result is not None
    assert [len(placeholders(body.graph)) for body in subgraphs(result.graph)] == [1, 1]
    assert run_eager(result).run is not None
    assert torch.equal(result.graph(*result.inputs)[0], case.graph(*case.inputs)[0])


def test_an_operand_that_one_branch_reads_stays():
    case = captured(
        lambda x, y: torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a.cos(), (x, y)), X, Y
    )
    assert not proposals(STEP, case)


def test_a_checkpoint_takes_only_what_it_needs():
    case = captured(
        lambda x, y: checkpoint(lambda a, b: (a * b).sin() + a, x, y, use_reentrant=False),
        X.clone().requires_grad_(),
        Y,
    )
    best = minimize(Problem(case, FakeOracle(has_ops("tag_activation_checkpoint")))).best
    assert len(best.inputs) == 1


def test_a_branch_keeps_nothing_that_it_does_not_need():
    best = minimize(Problem(unread_operand(), FakeOracle(has_ops("cond")))).best
    assert [len(placeholders(body.graph)) for body in subgraphs(best.graph)] == [1, 1]
    assert len(best.inputs) == 1  # the predicate, which a branch reads, too
