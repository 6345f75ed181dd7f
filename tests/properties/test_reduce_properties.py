"""Random graphs and random pure predicates: what holds for every reduction."""

import operator

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule, Node

from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.size import is_smaller
from ctk.toolkit.reduce.steps import STEPS
from tests.helpers.reduce_graphs import FakeOracle, op_names
from tests.helpers.reduce_steps import single_edits

UNARY = (torch.sin, torch.cos, torch.relu, torch.tanh)
BINARY = (torch.add, torch.mul, torch.maximum)
OP_NAMES = [op.__name__ for op in (*UNARY, *BINARY)] + ["split", "add_", "size"]


@st.composite
def cases(draw: st.DrawFn, *, in_place: bool = True) -> Case:
    """Draw a graph of 2 to 16 steps over 4x4 tensors, with tuples, sizes and in-place ops."""
    graph = Graph()
    values: list[Node] = [graph.placeholder(name) for name in ("x", "y")]
    kinds = ["unary", "unary", "binary", "split", "size"] + ["add_"] * in_place
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=16)):
        source = draw(st.sampled_from(values))
        if kind == "unary":
            values.append(graph.call_function(draw(st.sampled_from(UNARY)), (source,)))
        elif kind == "binary":
            other = draw(st.sampled_from(values))
            values.append(graph.call_function(draw(st.sampled_from(BINARY)), (source, other)))
        elif kind == "split":
            parts = graph.call_method("split", (source, 2))
            halves = [graph.call_function(operator.getitem, (parts, i)) for i in (0, 1)]
            values.append(graph.call_function(torch.cat, (halves,)))
        elif kind == "size":
            number = graph.call_method("size", (source, 0))
            values.append(graph.call_function(torch.mul, (source, number)))
        else:
            values.append(graph.call_method("add_", (source, 1)))
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3, unique=True))
    graph.output(tuple(outputs))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 3)))
    inputs = tuple(torch.randn(4, 4, generator=generator) for _ in range(2))
    return Case(GraphModule({}, graph), inputs, target="fake")


@st.composite
def problems(draw: st.DrawFn) -> tuple[Case, frozenset[str]]:
    """Draw a case and the ops that its failure needs: one to three that it has."""
    case = draw(cases())
    present = sorted(set(op_names(case)) & set(OP_NAMES))
    needed = draw(st.lists(st.sampled_from(present), min_size=1, max_size=3, unique=True))
    return case, frozenset(needed)


def has_all(needed: frozenset[str]):
    return lambda case: needed <= set(op_names(case))


@settings(deadline=None, max_examples=60, derandomize=True)
@given(problems())
def test_a_reduction_reproduces_is_no_larger_and_asks_nothing_twice(problem):
    case, needed = problem
    before = fingerprint(case)
    oracle = FakeOracle(has_all(needed))
    result = minimize(Problem(case, oracle))
    assert result.finished
    assert oracle.predicate(result.best)
    assert result.best is case or is_smaller(result.best, case)
    asked = [fingerprint(each) for each in oracle.asked]
    assert len(asked) == len(set(asked))
    assert fingerprint(case) == before
    assert all(run_eager(each).error is None for each in oracle.asked)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(problems())
def test_a_second_run_is_idle_and_cheap(problem):
    case, needed = problem
    first = minimize(Problem(case, FakeOracle(has_all(needed))))
    second = minimize(Problem(first.best, FakeOracle(has_all(needed))))
    assert second.best is first.best
    assert second.questions <= 8 + 6 * first.nodes_after


@settings(deadline=None, max_examples=40, derandomize=True)
@given(problems())
def test_a_result_is_minimal_no_single_edit_reproduces(problem):
    case, needed = problem
    best = minimize(Problem(case, FakeOracle(has_all(needed)))).best
    facts = facts_of(best)
    for step in STEPS:
        for proposal in step.propose(best, facts):
            for edit in single_edits(proposal):
                candidate = edit.apply(best, facts)
                assert (
                    candidate is None
                    or not is_smaller(candidate, best)
                    or not needed <= set(op_names(candidate))
                ), edit


@settings(deadline=None, max_examples=60, derandomize=True)
@given(cases(in_place=False), st.data())
def test_what_remains_of_a_program_computes_what_it_did(case: Case, data: st.DataObject):
    """Any removal of units leaves values unchanged: inputs carry what the removed nodes gave."""
    facts = facts_of(case)
    units = data.draw(st.lists(st.sampled_from(facts.units), unique=True))
    removed = tuple(name for unit in units for name in unit)
    rest = RemoveNodes(removed).apply(case, facts)
    if rest is None:
        return
    theirs = _all_values(case)
    for name, value in _all_values(rest).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, theirs[name]), name


def _all_values(case: Case) -> dict[str, object]:
    values: dict[str, object] = {}
    inputs = iter(case.inputs)
    for node in case.graph.graph.nodes:
        if node.op == "placeholder":
            values[node.name] = next(inputs)
        elif node.op != "output":
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: values[n.name])
            is_method = node.op == "call_method"
            call = getattr(args[0], str(node.target)) if is_method else node.target
            values[node.name] = call(*(args[1:] if is_method else args), **kwargs)
    return values
