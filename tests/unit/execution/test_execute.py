"""Running cases: nothing of a case changes, and a target sees what Dynamo would hand it."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import fx
from torch.func import hessian
from torch.utils.checkpoint import checkpoint

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.execution.execute import run_compiled, run_eager, run_graph, run_reference
from ctk.toolkit.importers import load_cases
from ctk.toolkit.operations.check import check
from ctk.toolkit.options import CaseOptions
from tests.helpers.executions import UseTarget, inplace_case, trace, values
from tests.helpers.fake_target import FakeTarget


@pytest.fixture
def use_target(monkeypatch: pytest.MonkeyPatch) -> UseTarget:
    """Put a plain function `(gm, example_inputs) -> callable` under test as the case's target."""

    def use(compile_graph: Callable[..., object]) -> None:
        target = FakeTarget(compile_graph)
        monkeypatch.setattr("ctk.toolkit.execution.execute.resolve_target", lambda spec: target)

    return use


def test_a_run_changes_nothing_of_the_case():
    case = inplace_case()
    text = str(case.graph.graph)
    first, second = values(run_eager(case)), values(run_eager(case))
    assert list(first) == ["out0", "out1", "in0", "in1", "held_count"]
    assert torch.equal(first["in0"], torch.ones(3))
    assert torch.equal(first["held_count"], torch.ones(3))
    assert torch.equal(second["out0"], torch.ones(3))
    assert torch.equal(case.inputs[0], torch.zeros(3))
    assert torch.equal(case.graph.count, torch.zeros(3))
    assert str(case.graph.graph) == text


@pytest.mark.parametrize("target", ["eager", "torchscript"])
def test_a_called_module_starts_from_the_state_of_the_case(target: str):
    graph = fx.Graph()  # BatchNorm counts its batches, also when it is traced
    graph.output((graph.call_module("norm", (graph.placeholder("x"),)),))
    model = fx.GraphModule({"norm": torch.nn.BatchNorm1d(3)}, graph)
    case = Case(model, (torch.randn(4, 3),), target)
    compiled = values(run_compiled(case))
    assert compiled["held_norm.num_batches_tracked"] == 1
    assert set(compiled) == set(values(run_eager(case)))
    assert model.norm.num_batches_tracked == 0


def test_called_modules_keep_their_state():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4))
    case = Case(fx.symbolic_trace(model), (torch.randn(8, 4),))
    before = model[0].running_mean.clone()
    assert run_eager(case).error is None
    assert run_reference(case, run_eager(case)).dtype is torch.float64
    assert torch.equal(model[0].running_mean, before)
    assert model[0].weight.dtype is torch.float32


def test_an_error_is_an_outcome_and_an_interrupt_is_not():
    broken = Case(trace(lambda x: x.view(7)), (torch.zeros(3),))
    outcome = run_eager(broken)
    assert outcome.run is None
    assert isinstance(outcome.error, RuntimeError)

    def interrupt(x):
        raise KeyboardInterrupt

    graph = fx.Graph()
    graph.output(graph.call_function(interrupt, (graph.placeholder("x"),)))
    with pytest.raises(KeyboardInterrupt):
        run_graph(fx.GraphModule({}, graph), (torch.zeros(1),), Modes())


def test_gradients_come_from_seeded_tangents():
    gm = trace(lambda x, w, unused: (x * w, (x * 2).detach()))
    x, w, unused = (torch.randn(64, requires_grad=True) for _ in range(3))
    case = Case(gm, (x, w, unused), modes=Modes(backward=True))
    first, second = values(run_eager(case)), values(run_eager(case))
    assert list(first)[-3:] == ["grad_in0", "grad_in1", "grad_in2"]
    assert first["grad_in2"] is None
    tangent = first["grad_in0"] / w.detach()
    torch.testing.assert_close(first["grad_in1"], tangent * x.detach())
    assert torch.equal(first["grad_in0"], second["grad_in0"])
    assert x.grad is None
    wide = values(run_reference(case, run_eager(case)))
    torch.testing.assert_close(wide["grad_in0"], first["grad_in0"].double())


def test_a_checkpointed_region_draws_its_numbers_once():
    """torch's operator draws anew when it recomputes the region in eager."""

    def region(x):
        return torch.nn.functional.dropout(x.sin(), 0.5)

    def gradient(fn):
        x = torch.ones(64, requires_grad=True)
        (case,) = load_cases(fn, [x], CaseOptions(target="aot_eager", backward=True))
        outcome = run_eager(case)
        assert outcome.run is not None
        return outcome.run.values["grad_in0"]

    recomputed = gradient(lambda x: checkpoint(region, x, use_reentrant=False) * 2)
    torch.testing.assert_close(recomputed, gradient(lambda x: region(x) * 2))


def test_results_that_alias_inputs_are_what_they_were():
    gm = trace(lambda x: (x[0], x.expand(2, 3)))
    result = values(run_eager(Case(gm, (torch.arange(3.0).reshape(1, 3),))))
    assert result["out1"].stride() == (0, 1)
    assert result["out0"].data_ptr() != result["in0"].data_ptr()


def test_a_target_may_spoil_what_it_is_given(use_target):
    def spoil(gm, example_inputs):
        for value in example_inputs:
            value.fill_(99.0)
        gm.count.fill_(5.0)
        for node in list(gm.graph.nodes)[::-1]:
            node.meta.clear()
        gm.graph.find_nodes(op="call_method", target="add_")[0].args = (1,)
        return lambda x, y: (x + 1, y * 2)

    use_target(spoil)
    case = inplace_case()
    text = str(case.graph.graph)
    outcome = run_compiled(case)
    assert torch.equal(values(outcome)["out1"], torch.full((3,), 2.0))
    assert str(case.graph.graph) == text
    assert torch.equal(case.graph.count, torch.zeros(3))
    assert torch.equal(case.inputs[0], torch.zeros(3))


def test_the_phase_of_an_error_is_told(use_target):
    def fail(gm, example_inputs):
        raise ValueError("cannot compile")

    case = Case(trace(lambda x: x + 1), (torch.zeros(2),))
    use_target(fail)
    outcome = run_compiled(case)
    assert outcome.phase == "compile" and isinstance(outcome.error, ValueError)

    def fail_later(gm, example_inputs):
        return lambda x: fail(gm, x)

    use_target(fail_later)
    assert run_compiled(case).phase == "call"


def test_the_compiled_call_starts_from_the_case_seed(use_target):
    def waste(gm, example_inputs):
        torch.rand(100)
        return gm.forward

    use_target(waste)
    case = Case(trace(lambda x: x + torch.rand(x.shape)), (torch.zeros(3),), modes=Modes(seed=3))
    eager, compiled = run_eager(case), run_compiled(case)
    assert torch.equal(values(eager)["out0"], values(compiled)["out0"])
    assert compiled.drew_random
    assert eager.run is not None and compiled.run is not None
    assert torch.equal(eager.run.generators[0], compiled.run.generators[0])


def symbolic_case() -> Case:
    gm = trace(lambda s0, x, y: (x.sum() + s0, y))
    inputs = (4, torch.randn(4, 4), torch.randn(4, 8))
    return Case(gm, inputs, dynamic={"x": ("s0", None), "y": ("s0", "s1")})


def test_symbolic_sizes_are_handed_over_as_dynamo_does(use_target):
    seen = {}

    def look(gm, example_inputs):
        seen["inputs"] = list(example_inputs)
        nodes = gm.graph.find_nodes(op="placeholder")
        seen["fakes"] = [node.meta["example_value"] for node in nodes]
        mode = torch._guards.TracingContext.get().fake_mode
        seen["remembered"] = mode.from_tensor(example_inputs[2])
        return gm.forward

    use_target(look)
    outcome = run_compiled(symbolic_case())
    size, x, _ = seen["inputs"]
    assert isinstance(size, torch.SymInt)
    assert type(x) is torch.Tensor
    symbol, fake_x, fake_y = seen["fakes"]
    expr = symbol.node.expr
    assert fake_x.shape[0].node.expr == fake_y.shape[0].node.expr == expr
    assert isinstance(fake_x.shape[1], int)  # equal hint, but fixed
    assert fake_y.shape[1].node.expr != expr
    assert seen["remembered"].shape[0].node.expr == expr
    assert values(outcome)["out1"].shape == (4, 8)


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({"x": ("s0",)}, "1 symbols for placeholder x"),
        ({"x": ("s0", None), "y": (None, "s0")}, "symbol s0 is 4 for placeholder s0 and 8 for y"),
    ],
)
def test_symbols_that_do_not_fit_the_inputs_are_refused(use_target, dynamic, message):
    use_target(lambda gm, example_inputs: gm.forward)
    with pytest.raises(CaseError, match=message):
        run_compiled(dataclasses.replace(symbolic_case(), dynamic=dynamic))


def test_a_symbolic_case_compiles_with_aot_autograd(use_target):
    from torch._dynamo.backends.debugging import aot_eager

    use_target(lambda gm, example_inputs: aot_eager(gm, list(example_inputs)))
    case = dataclasses.replace(symbolic_case(), modes=Modes(grad=False))
    assert torch.equal(values(run_compiled(case))["out0"], values(run_eager(case))["out0"])


def test_a_case_that_is_only_compiled_has_no_run_and_is_not_called(use_target):
    called = []
    use_target(lambda gm, example_inputs: lambda *values: called.append(values))
    outcome = run_compiled(Case(trace(lambda x: x + 1), (torch.zeros(2),)), is_called=False)
    assert outcome.run is None and outcome.error is None and not called


WEIGHT = torch.ones(3, 5)


def curvature(x: torch.Tensor) -> torch.Tensor:
    return hessian(lambda a: (a @ WEIGHT).tanh().sum())(x[1])


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_a_graph_that_no_fake_tensor_runs_is_judged_all_the_same() -> None:
    """torch 2.13 loses a transform of functorch when the fake run of this graph raises."""
    report = check(curvature, (torch.linspace(-1, 1, 18).view(6, 3),), target="aot_eager")
    (graph,) = report.graphs
    seen = graph.judgement.signature
    assert report.ok or (seen is not None and seen.kind == "compile-error")
