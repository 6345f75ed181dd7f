"""Candidates that must not run in this process: fake tensors say what they can."""

import dataclasses
import os

import pytest
import torch
from torch import Tensor

import ctk
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.argument_edits import SetArgument
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.form_edits import ConvertTensors
from ctk.toolkit.reduce.index_bounds import is_out_of_bounds
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.validity import can_run, foresee_facts
from tests.helpers.reduce_graphs import captured, has_ops, op_names
from tests.helpers.reduce_steps import X, traced


@torch.library.custom_op("ctk_tests::fragile", mutates_args=())
def fragile(x: Tensor, number: float) -> Tensor:
    """Return a copy; a small number ends the process."""
    if number < 50:
        os._exit(77)
    return x + 1


@fragile.register_fake
def _(x: Tensor, number: float) -> Tensor:
    return torch.empty_like(x)


def test_what_would_end_this_process_is_left_to_the_oracle():
    case = traced(lambda x: torch.ops.ctk_tests.fragile(x.relu(), 100.0), X)

    def oracle(candidate: Case) -> Judgement:  # as one that asks another process
        fails = has_ops("fragile")(candidate) and "100.0" in candidate.graph.code
        return Judgement(Verdict.REPRODUCES if fails else Verdict.PASSES)

    found = minimize(Problem(case, oracle, may_run=False))
    assert found.finished and op_names(found.best) == ["fragile"]


def embedding(i: Tensor, w: Tensor) -> Tensor:
    return torch.embedding(w, i)


def gather(i: Tensor, w: Tensor) -> Tensor:
    return w.gather(0, i[:, None])


@pytest.mark.parametrize("may_run", [True, False])
@pytest.mark.parametrize("call", [embedding, gather])
def test_what_fake_tensors_refuse_is_no_candidate(call, may_run):
    if call is embedding and not may_run and torch.__version__ < "2.13":
        pytest.skip("the fake tensors of torch before 2.13 take floats as its indices")
    case = traced(call, torch.arange(3), X)
    facts = facts_of(case, may_run=may_run)
    assert ConvertTensors(("i",), torch.float32).apply(case, facts) is None


def test_what_fake_tensors_cannot_run_at_all_may_be_one():
    case = captured(lambda x: x[x > 0] * 2.0, X)
    facts = facts_of(case, may_run=False)
    node = next(node.name for node in case.graph.graph.nodes if "mul" in node.name)
    candidate = SetArgument(node, 1, 2.0, 1.0).apply(case, facts)
    assert candidate is not None
    assert can_run(candidate, case, facts) is None


def test_facts_foreseen_are_those_of_a_run():
    case = captured(lambda x: torch.split(x.relu().t(), 2)[1] * x.size(0), X)
    facts = facts_of(case, may_run=False)
    ahead = foresee_facts(case, facts)
    assert ahead is not None and ahead.units == facts.units and ahead.free == facts.free
    assert {n: ahead.infos[n] for n in ahead.infos} == {n: facts.infos[n] for n in ahead.infos}


def has_cholesky(graph: torch.fx.GraphModule, inputs: tuple[object, ...]) -> bool:
    return any("cholesky" in str(node.target) for node in graph.graph.nodes)


def test_what_an_own_predicate_takes_runs_in_eager():
    def run(x):
        return torch.linalg.cholesky(x @ x.T + torch.eye(4)).sin()

    given = torch.randn(4, 4)
    found = ctk.minimize(torch.fx.symbolic_trace(run), [given], has_cholesky)
    assert found.finished
    found.graph(*found.inputs)
    refused = [each for each in found.certificate if each.why == "eager raises"]
    assert refused and all(each.verdict is Verdict.INVALID for each in refused)


def test_an_own_predicate_is_not_asked_about_what_raises_in_eager():
    def run(x, i, v):
        return torch.ops.aten.index_put_.default(x, [i], v, True)

    def fails(graph: torch.fx.GraphModule, inputs: tuple[object, ...]) -> bool:
        graph(*inputs)  # what it raises would end the search
        return any("index_put_" in str(node.target) for node in graph.graph.nodes)

    given = torch.randn(4, 5), torch.tensor([1, 3]), torch.randn(2, 5)
    found = ctk.minimize(torch.fx.symbolic_trace(run), given, fails)
    assert found.finished
    refused = [each for each in found.certificate if each.why == "eager raises"]
    assert refused and all(each.verdict is Verdict.INVALID for each in refused)


def test_a_program_that_raises_in_eager_is_reduced_all_the_same():
    def run(x):
        return torch.linalg.cholesky(x - 1).sin()

    found = ctk.minimize(torch.fx.symbolic_trace(run), [torch.ones(4, 4)], has_cholesky)
    assert found.finished and found.nodes_after == 1


class Table(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return torch.nn.functional.embedding(index, self.table) + x.sum()


@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        (lambda x, i: x[torch.randperm(7, device=x.device)] + i, (torch.randn(4), X[0, 0])),
        (lambda x, i: x.gather(0, i), (torch.randn(4), torch.tensor([0, 4]))),
        (lambda x, i: x.index_add(0, i, x[:2]), (torch.randn(4), torch.tensor([0, 7]))),
        (Table(), (torch.randn(2), torch.tensor([3, 4]))),
    ],
)
def test_an_index_out_of_bounds_is_found_on_the_cpu(program, inputs):
    """On a GPU it would break the process; the device of the case is not used."""
    assert is_out_of_bounds(traced(program, *inputs))


@pytest.mark.parametrize(
    "program",
    [
        lambda x, i: x[torch.randperm(4, device=x.device)],
        lambda x, i: x.gather(0, i) + torch.ones(2, device="cpu"),
        lambda x, i: x.reshape(3, 3),  # another reason
    ],
)
def test_no_other_program_indexes_out_of_bounds(program):
    case = traced(lambda x, i: x.gather(0, i), torch.randn(4), torch.tensor([0, 3]))
    graph = torch.fx.symbolic_trace(program)
    assert not is_out_of_bounds(dataclasses.replace(case, graph=graph))
