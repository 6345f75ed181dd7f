"""reduce_subgraphs: other steps, lifted: the edit says where, and the caller notices nothing."""

import dataclasses
import operator
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, symbolic_trace

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.walk import by_name, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.edits import DropOutputs, FoldNumbers, Reconnect, RemoveNodes, Replace
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.proposal import GaveUp
from ctk.toolkit.reduce.steps import STEPS
from ctk.toolkit.reduce.steps.reduce_subgraphs import INSIDE, OUTSIDE, STEP
from ctk.toolkit.reduce.subgraph_edits import SubgraphEdit, inner_cases
from tests.helpers.reduce_graphs import FakeOracle, captured
from tests.helpers.reduce_steps import X, edits, proposals, traced

W = (torch.arange(16, dtype=torch.float64).reshape(4, 4) + 1) * 50.25
TRUE = ("cond_true_0",)


def branching():
    def run(p, x, y):
        def taken(a, b):
            return ((a.sin().neg() + b).tanh(), b.cos())

        return torch.cond(p, taken, lambda a, b: (a * b, a.sin()), (x, y))

    return captured(run, torch.tensor(True), X, X + 1)


def nested():
    def run(p, x):
        def inner(a):
            return torch.cond(p, lambda b: b.sin().cos(), torch.cos, (a,))

        return torch.cond(p, inner, torch.neg, (x,))

    return captured(run, torch.tensor(True), X)


def test_what_other_steps_would_do_with_the_branch_alone():
    case = branching()
    branch = case.graph.cond_true_0
    neg = next(node for node in branch.graph.nodes if node.target == "neg")
    found = [edit for each in proposals(STEP, case) for edit in edits(each)]
    assert SubgraphEdit(TRUE, Reconnect((neg.name,))) in found
    assert all(isinstance(edit, SubgraphEdit) for edit in found)


def test_branches_of_branches():
    case = nested()
    depths = {len(edit.path) for each in proposals(STEP, case) for edit in edits(each)}
    assert depths == {1, 2}
    assert {len(path) for path, *_ in inner_cases(case)} == {1, 2}


def test_an_input_without_use_stays_and_the_program_computes_the_same():
    case = branching()
    (true, false) = (inner for path, inner, _ in inner_cases(case) if len(path) == 1)
    add = next(node for node in true.graph.graph.nodes if "add" in node.name)
    edit = SubgraphEdit(TRUE, Replace(((add.name, add.args[1].name),)))
    result = edit.apply(case, facts_of(case))
    assert result is not None
    names = [node.name for node in placeholders(true.graph)]
    assert [node.name for node in placeholders(result.graph.cond_true_0)] == names
    assert torch.equal(result.graph(*result.inputs)[0], (X + 1).tanh())
    assert false.graph is result.graph.cond_false_0


def test_what_the_caller_would_notice_makes_no_sense():
    case = branching()
    facts = facts_of(case)
    sin = next(n.name for n in case.graph.cond_true_0.graph.nodes if n.target == "sin")
    assert SubgraphEdit(TRUE, RemoveNodes((sin,))).apply(case, facts) is None
    assert SubgraphEdit(TRUE, DropOutputs((0,))).apply(case, facts) is None
    assert SubgraphEdit(("nowhere",), DropOutputs((0,))).apply(case, facts) is None


def test_without_sub_graphs_there_is_nothing_to_propose():
    assert proposals(STEP, traced(lambda x: x.sin(), X)) == []


def test_each_step_looks_inside_or_there_is_a_reason():
    inside = [step.name for step in INSIDE]
    assert sorted([*inside, *OUTSIDE]) == sorted(step.name for step in STEPS)


def test_arguments_inside_get_their_defaults_and_simpler_numbers():
    def run(p, x):
        def taken(a):
            return torch.clamp(a, min=-100.0, max=37.5)

        return torch.cond(p, taken, lambda a: a.clone(), (x,))

    def needed(case):
        branch = getattr(case.graph, "cond_true_0", None)
        return branch is not None and "clamp" in branch.code

    case = captured(run, torch.tensor(True), X)
    result = minimize(Problem(case, FakeOracle(needed)))
    clamp = next(n for n in result.graph.cond_true_0.graph.nodes if "clamp" in str(n.target))
    assert result.finished
    assert [value for _, value in sorted(clamp.kwargs.items())] in ([1.0], [-1.0])
    refused = [each.edit for each in result.certificate if each.step == "reduce_subgraphs"]
    assert any("default of argument" in edit for edit in refused)


def calling(operator, body, *arguments) -> Case:
    """Return a case that calls a sub-graph `body` with `x`."""
    outer = Graph()
    x, held = outer.placeholder("x"), outer.get_attr("body")
    outer.output(outer.call_function(operator, (held, *(a(x) for a in arguments))))
    module = GraphModule({"body": symbolic_trace(body)}, outer)
    return Case(module, (X,), target="fake")


def test_numbers_inside_are_folded():
    wrap = torch.ops.higher_order.tag_activation_checkpoint
    case = calling(wrap, lambda a: a * a.size(0), lambda x: x)
    found = [edit for each in proposals(STEP, case) for edit in edits(each)]
    assert SubgraphEdit(("body",), FoldNumbers(("size",))) in found


@dataclass(frozen=True)
class Flatten:
    name: str

    def says(self) -> str:
        return f"{self.name} flat"

    def apply(self, case, facts):
        graph = copy_graph_module(case.graph)
        node = by_name(graph)[self.name]
        node.op, node.target = "call_method", "flatten"
        graph.recompile()
        return dataclasses.replace(case, graph=graph)


def test_the_constants_of_a_sub_graph_get_simpler_forms_and_values():
    wrap = torch.ops.higher_order.tag_activation_checkpoint
    case = calling(wrap, lambda a: a * 2, lambda x: x)
    body = Graph()
    a, held = body.placeholder("a"), body.get_attr("weight")
    body.output(body.call_function(torch.mul, (a, held)))
    case.graph.body = GraphModule({"weight": W.t()}, body)

    def needed(case):
        held = getattr(getattr(case.graph, "body", None), "weight", None)
        return held is not None and float(held.max()) > 100

    result = minimize(Problem(case, FakeOracle(needed)))
    weight = result.graph.body.weight
    assert result.finished
    assert (weight.dtype, tuple(weight.shape)) == (torch.float32, (1, 1))
    assert (weight.is_contiguous(), weight.tolist()) == (True, [[101.0]])
    assert "self.body.weight: 101 -> 100" in [each.edit for each in result.certificate]


def test_a_result_of_another_form_makes_no_sense():
    case = branching()
    branch = case.graph.cond_true_0.graph
    result = next(n for n in branch.nodes if n.target == "cos")
    inner = next(n for n in branch.nodes if n.target == "neg")
    for name in (result.name, inner.name):
        assert SubgraphEdit(TRUE, Flatten(name)).apply(case, facts_of(case)) is None


def test_a_sub_graph_that_gets_slices_is_said_not_to_be_looked_into():
    mapped = torch.ops.higher_order.map_impl
    case = calling(mapped, lambda a: a.view(2, 2).relu(), lambda x: [x], lambda x: [])
    gave_up = [each for each in STEP.propose(case, facts_of(case)) if isinstance(each, GaveUp)]
    assert gave_up == [GaveUp("body: does not run by itself on the operands of its call")]


def test_an_edit_after_which_the_subgraph_raises_makes_no_sense():
    inner = Graph()
    x, y = map(inner.placeholder, "xy")
    total = inner.call_function(torch.ops.aten.add.Tensor, (x, y))
    inner.output((inner.call_function(torch.linalg.cholesky, (total,)),))
    root = torch.nn.Module()
    root.true = root.false = GraphModule({}, inner)
    outer = Graph()
    p, x, y = map(outer.placeholder, "pxy")
    branches = (outer.get_attr("true"), outer.get_attr("false"))
    call = outer.call_function(torch.ops.higher_order.cond, (p, *branches, (x, y)))
    outer.output((outer.call_function(operator.getitem, (call, 0)),))
    inputs = (torch.tensor(True), torch.zeros(3, 3), torch.eye(3))
    case = Case(GraphModule(root, outer), inputs, target="eager")
    facts = facts_of(case)

    def changed(operand: str) -> Case | None:
        return SubgraphEdit(("true",), Replace(((total.name, operand),))).apply(case, facts)

    assert changed("y") is not None
    assert changed("x") is None  # cholesky of zeros, of which fake tensors know nothing
