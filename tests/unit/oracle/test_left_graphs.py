"""Graphs that Dynamo runs in eager, as their backend raises that data decide a value."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as torch_map

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import load_case
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.operations.check import CheckReport, GraphCheck, check
from ctk.toolkit.operations.diagnose import diagnose
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.watch.hooks import install

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of autograd, on the formula


@torch.library.custom_op("left::scaled", mutates_args=())
def scaled(x: Tensor, by: Tensor) -> Tensor:
    return x * float(by)


@scaled.register_fake
def _(x: Tensor, by: Tensor) -> Tensor:
    return torch.empty_like(x)


def by_number(ctx, grad: Tensor) -> tuple[Tensor, None]:
    return grad * (0 if ctx.by.tolist() == 0 else ctx.by.tolist()), None


def keep(ctx, inputs, output) -> None:
    ctx.by = inputs[1]


torch.library.register_autograd("left::scaled", by_number, setup_context=keep)


@torch.library.custom_op("left::picked", mutates_args=())
def picked(x: Tensor, by: Tensor) -> Tensor:
    return x.clone()


@picked.register_fake
def _(x: Tensor, by: Tensor) -> Tensor:
    return torch.empty_like(x)


def by_rows(ctx, grad: Tensor) -> tuple[Tensor, None]:
    return grad + 0 * ctx.by.nonzero().shape[0], None


torch.library.register_autograd("left::picked", by_rows, setup_context=keep)


@torch.library.custom_op("left::grouped", mutates_args=())
def grouped(x: Tensor, by: Tensor) -> Tensor:
    return x * 2


@grouped.register_fake
def _(x: Tensor, by: Tensor) -> Tensor:
    return torch.empty_like(x)


def by_groups(ctx, grad: Tensor) -> tuple[Tensor, None]:
    total, start = torch.zeros_like(grad), 0
    for end in ctx.by.reshape(-1).tolist():
        total[start:end] = 2 * grad[start:end]
        start = end
    return total, None


torch.library.register_autograd("left::grouped", by_groups, setup_context=keep)


class Left(torch.nn.Module):
    def __init__(self, operator) -> None:
        super().__init__()
        self.operator, self.weight = operator, torch.nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        return self.operator(x * self.weight, by).relu()


INPUTS = torch.linspace(-1, 1, 12).view(3, 4), torch.tensor(3)
OPERATORS = {"a number": scaled, "a size": picked, "a loop": grouped}


@pytest.mark.parametrize("target", ["ctk", "inductor", "aot_eager"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_graph_that_dynamo_runs_in_eager_is_no_failure(name: str, target: str) -> None:
    report = check(Left(OPERATORS[name]), INPUTS, target=target)
    assert report.ok, report
    (graph,) = report.graphs
    assert graph.judgement.verdict is Verdict.INVALID
    assert graph.notes == (graph.judgement.detail,)
    assert graph.judgement.detail.endswith("for which Dynamo runs it in eager")
    assert judge(graph.case).verdict is Verdict.INVALID


def test_the_time_of_a_compile_that_dynamo_leaves_is_not_measured() -> None:
    report = check(Left(scaled), INPUTS, target="aot_eager", compile_above=100)
    assert report.judgement.verdict is Verdict.INVALID, report
    assert "Dynamo runs it in eager" in report.judgement.detail


def test_diagnose_says_so_too(tmp_path: Path) -> None:
    found = diagnose(Left(scaled), INPUTS, target="inductor", out=tmp_path / "out")
    assert found.judgement.is_no_failure


def test_the_answer_counts_the_graphs_that_were_compared() -> None:
    case = Case(torch.fx.symbolic_trace(lambda x: x.sin()), INPUTS[:1])
    graphs = [
        GraphCheck(case, Judgement(verdict), (), CompileLog())
        for verdict in (Verdict.PASSES, Verdict.INVALID)
    ]
    report = CheckReport(tuple(graphs), EndToEnd(Judgement(Verdict.PASSES)))
    assert str(report) == "no failure: 1 graph, 0 steps, 0 values compared"


@pytest.mark.filterwarnings("ignore:ctk:RuntimeWarning")
def test_a_failure_under_fullgraph_is_judged_as_it_was_seen(tmp_path: Path) -> None:
    """Dynamo then allows numbers that data decide, and the trace of the gradient compares one."""
    with install(dump=tmp_path, check="output", on_failure="warn") as hooks:
        torch.compile(Left(scaled), backend="aot_eager", fullgraph=True)(*INPUTS)
    (failure,) = hooks.session.failures
    case = load_case(failure.folder, trust=True)
    assert case.signature is not None
    assert case.signature.exception == "GuardOnDataDependentSymNode"
    assert judge(case, expected=case.signature).verdict is Verdict.REPRODUCES
    report = check(failure.folder, trust=True)
    assert report.graphs[0].judgement.verdict is Verdict.REPRODUCES


@pytest.mark.parametrize("name", ["a number", "a size"])
def test_numbers_and_sizes_are_allowed_one_by_one(name: str) -> None:
    other = {"a number": "capture_dynamic_output_shape_ops", "a size": "capture_scalar_outputs"}
    with torch._dynamo.config.patch({other[name]: True}):
        report = check(Left(OPERATORS[name]), INPUTS, target="aot_eager")
    assert report.ok, report
    assert report.graphs[0].judgement.verdict is Verdict.INVALID


def test_numbers_that_a_graph_was_captured_with_are_allowed() -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        report = check(lambda x, n: x * n.item(), INPUTS, target="inductor")
    assert report.ok, report
    assert report.graphs[0].judgement.verdict is Verdict.PASSES


def test_a_failed_case_is_compiled_as_it_was_before(tmp_path: Path) -> None:
    """A pass of Inductor makes a loop of `map` that needs a number, which `fullgraph` allows."""
    check(lambda x: torch_map(torch.sin, x), INPUTS[:1], target="inductor", out=tmp_path / "out")
    (folder,) = (tmp_path / "out").glob("graph*")
    case = load_case(folder, trust=True)
    first = judge(dataclasses.replace(case, signature=None))
    assert first.verdict is Verdict.REPRODUCES
    again = judge(dataclasses.replace(case, signature=first.signature), expected=first.signature)
    assert again.verdict is Verdict.REPRODUCES


def test_a_check_says_which_random_numbers_it_compares() -> None:
    report = check(lambda x: torch.nn.functional.dropout(x, 0.3), INPUTS[:1], target="inductor")
    assert report.ok
    (note,) = report.graphs[0].notes
    assert note == (
        "compiled with fallback_random=True: random numbers that inductor draws are not compared"
    )
    silent = check(lambda x: x.sin(), INPUTS[:1], target="inductor")
    assert silent.graphs[0].notes == ()
