"""reduce_subgraphs: other steps, lifted: the edit says where, and the caller notices nothing."""

import torch

from ctk.compiler.fx.walk import placeholders
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.edits import DropOutputs, Reconnect, RemoveNodes, Replace
from ctk.toolkit.reduce.focus import Focus, Inside, inner_cases
from ctk.toolkit.reduce.steps.reduce_subgraphs import STEP
from tests.helpers.reduce_graphs import captured
from tests.helpers.reduce_steps import X, edits, proposals, traced

TRUE = Focus(("cond_true_0",))


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
    assert Inside(TRUE, Reconnect((neg.name,))) in found
    assert all(isinstance(edit, Inside) for edit in found)


def test_branches_of_branches():
    case = nested()
    depths = {len(edit.focus.path) for each in proposals(STEP, case) for edit in edits(each)}
    assert depths == {1, 2}
    assert {len(focus.path) for focus, _ in inner_cases(case)} == {1, 2}


def test_an_input_without_use_stays_and_the_program_computes_the_same():
    case = branching()
    (true, false) = (inner for focus, inner in inner_cases(case) if len(focus.path) == 1)
    add = next(node for node in true.graph.graph.nodes if "add" in node.name)
    edit = Inside(TRUE, Replace(((add.name, add.args[1].name),)))
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
    assert Inside(TRUE, RemoveNodes((sin,))).apply(case, facts) is None
    assert Inside(TRUE, DropOutputs((0,))).apply(case, facts) is None
    assert Inside(Focus(("nowhere",)), DropOutputs((0,))).apply(case, facts) is None


def test_without_sub_graphs_there_is_nothing_to_propose():
    assert proposals(STEP, traced(lambda x: x.sin(), X)) == []
