"""reform_inputs: an input takes the form in which its value is wanted later."""

import torch

from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.steps.reform_inputs import STEP, ReformInputs
from ctk.toolkit.reduce.steps.shortcut import EVERY_PAIR
from tests.helpers.reduce_graphs import FakeOracle, op_names
from tests.helpers.reduce_steps import X, edits, proposals, traced

W = torch.ones(8, 5)


def depends(case) -> bool:
    """Say that a case fails if a product depends on `relu`."""
    reached = set()
    for node in case.graph.graph.nodes:
        name = getattr(node.target, "__name__", str(node.target))
        is_relu = node.op.startswith("call") and "relu" in name
        if is_relu or any(source in reached for source in node.all_input_nodes):
            reached.add(node)
            if name == "mm":
                return True
    return False


def test_each_value_takes_the_place_of_a_later_one_of_another_shape():
    case = traced(lambda x, w: torch.mm(x.relu().reshape(2, 8), w), X, W)
    found = [edit for proposal in proposals(STEP, case) for edit in edits(proposal)]
    assert ReformInputs("reshape", "relu", ("x",)) in found


def test_the_reader_reads_what_it_read_before():
    case = traced(lambda x, w: torch.mm(x.relu().reshape(2, 8), w), X, W)
    result = minimize(Problem(case, FakeOracle(depends))).best
    assert op_names(result) == ["relu", "mm"]


def test_a_long_way_between_shapes_ends_at_two_nodes():
    def run(x, w):
        y = x.relu().sum(0).sin()
        y = torch.cat([y, y]).unsqueeze(0).expand(6, 8).cos()
        return torch.mm(y * 2, w).sum()

    result = minimize(Problem(traced(run, X, W), FakeOracle(depends)))
    assert op_names(result.best) == ["relu", "mm"]
    assert result.finished


def test_in_a_large_program_only_what_a_node_reads():
    def run(x, w):
        for _ in range(EVERY_PAIR):
            x = x.relu()
        return torch.mm(x.reshape(2, 8), w)

    case = traced(run, X, W)
    found = [edit for proposal in proposals(STEP, case) for edit in edits(proposal)]
    assert [(edit.node, edit.source) for edit in found] == [("reshape", f"relu_{EVERY_PAIR - 1}")]
