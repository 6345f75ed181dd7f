"""Running cases: nothing of a case changes, the ambient state comes back, references are sound."""

import dataclasses
import operator
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from compiler.errors import CaseError, PrecisionRefused
from compiler.graph_copy import copy_graph_module
from toolkit.case import Autocast, Case, Modes
from toolkit.execute import (
    clone_inputs,
    graph_values,
    run_compiled,
    run_eager,
    run_graph,
    run_reference,
    tangent,
)
from toolkit.modes import applied, current_modes
from toolkit.targets.base import Target

UseTarget = Callable[[Callable[..., object]], None]


@pytest.fixture
def use_target(monkeypatch: pytest.MonkeyPatch) -> UseTarget:
    """Put a plain function `(gm, example_inputs) -> callable` under test as the case's target."""

    def use(compile_graph: Callable[..., object]) -> None:
        def compile_case(gm, example_inputs, *, config, observer):
            return compile_graph(gm, example_inputs)

        target = Target("fake", compile_case, lambda config: None)
        monkeypatch.setattr("toolkit.targets.resolve_target", lambda spec: target)

    return use


def trace(function: Callable[..., object]) -> fx.GraphModule:
    return fx.symbolic_trace(function)


def values(outcome) -> dict[str, object]:
    assert outcome.results is not None, outcome.error
    return {result.name: result.value for result in outcome.results}


# --- copies


def test_a_copied_graph_keeps_names_and_metadata_and_shares_tensors():
    gm = trace(lambda x: torch.relu(x + 1) * 2)
    gm.weight = torch.nn.Parameter(torch.ones(2))
    first = next(node for node in gm.graph.nodes if node.op == "call_function")
    first.name = "sum"  # FX itself would never give this name
    with gm.graph.inserting_before(first):
        weight = gm.graph.get_attr("weight")
    first.args = (first.args[0], weight)
    first.meta["tag"] = 1
    copied = copy_graph_module(gm)
    assert [n.name for n in copied.graph.nodes] == [n.name for n in gm.graph.nodes]
    assert copied.weight is gm.weight
    twin = next(node for node in copied.graph.nodes if node.name == "sum")
    twin.meta["tag"] = 2
    copied.graph.create_node("call_function", operator.add, (1, 1))
    assert first.meta["tag"] == 1
    assert len(copied.graph.nodes) == len(gm.graph.nodes) + 1


def test_a_copied_graph_has_its_own_branches(cond_graph):
    gm, _ = cond_graph
    copied = copy_graph_module(gm, lazy=True)
    branch, twin = gm.cond_true_0, copied.cond_true_0
    assert twin is not branch
    assert twin.graph is not branch.graph
    assert str(twin.graph) == str(branch.graph)


@pytest.fixture
def cond_graph():
    captured = []

    def backend(gm, example_inputs):
        captured.append(gm)
        return gm.forward

    def program(x, y):
        return torch.cond(x.sum() > 0, lambda x, y: x @ y, lambda x, y: x - y, (x, y))

    x, y = torch.ones(3, 3), torch.eye(3) * 2
    torch._dynamo.reset()
    torch.compile(program, backend=backend, dynamic=False)(x, y)
    return captured[0], (x, y)


def test_clones_keep_strides_leaves_parameters_and_identity():
    expanded = torch.arange(3.0).expand(4, 3)
    overlapping = torch.arange(12.0).as_strided((4, 4), (2, 1), 1)
    parameter = torch.nn.Parameter(torch.randn(2, 3).t())
    inputs = (expanded, overlapping, parameter, parameter, 7, None)
    clones = clone_inputs(inputs)
    for old, new in zip(inputs[:4], clones[:4], strict=True):
        assert new.data_ptr() != old.data_ptr()
        assert new.stride() == old.stride()
        assert new.storage_offset() == old.storage_offset()
        assert torch.equal(new, old)
    assert isinstance(clones[2], torch.nn.Parameter)
    assert clones[2].requires_grad and clones[2].is_leaf
    assert clones[3] is clones[2]
    assert clones[4:] == (7, None)


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_clones_that_shared_storage_share_it_again(dtype):
    base = torch.arange(12.0)
    first, rest, other = clone_inputs((base[:8], base[4:], torch.zeros(2)), dtype=dtype)
    first[4] = 100.0
    assert rest[0] == 100.0
    assert base[4] == 4.0
    assert other.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.eye(3).to_sparse(),
        torch.empty(0, 3),
        torch.tensor(1.5),
        torch.tensor([1, 2], dtype=torch.int8),
    ],
    ids=["conj", "sparse", "empty", "0-d", "int8"],
)
def test_unusual_tensors_are_cloned(tensor):
    (clone,) = clone_inputs((tensor,))
    assert clone is not tensor
    assert clone.dtype == tensor.dtype and clone.shape == tensor.shape
    torch.testing.assert_close(clone, tensor)


# --- eager runs


def inplace_case() -> Case:
    gm = trace(lambda x, y: (x.add_(1), y * 2))
    gm.register_buffer("count", torch.zeros(3))
    output = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        count = gm.graph.get_attr("count")
        gm.graph.call_method("add_", (count, 1))
    gm.recompile()
    return Case(gm, (torch.zeros(3), torch.ones(3)), target="fake")


def test_a_run_changes_nothing_of_the_case():
    case = inplace_case()
    text = str(case.graph.graph)
    first, second = values(run_eager(case)), values(run_eager(case))
    assert list(first) == ["out0", "out1", "in0", "in1"]
    assert torch.equal(first["in0"], torch.ones(3))
    assert torch.equal(second["out0"], torch.ones(3))
    assert torch.equal(case.inputs[0], torch.zeros(3))
    assert torch.equal(case.graph.count, torch.zeros(3))
    assert str(case.graph.graph) == text


def test_called_modules_keep_their_state():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4))
    case = Case(fx.symbolic_trace(model), (torch.randn(8, 4),))
    before = model[0].running_mean.clone()
    assert run_eager(case).error is None
    assert run_eager(case, dtype=torch.float64).dtype is torch.float64
    assert torch.equal(model[0].running_mean, before)
    assert model[0].weight.dtype is torch.float32


def test_an_error_is_an_outcome_and_an_interrupt_is_not():
    broken = Case(trace(lambda x: x.view(7)), (torch.zeros(3),))
    outcome = run_eager(broken)
    assert outcome.results is None
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
    wide = values(run_eager(case, dtype=torch.float64))
    torch.testing.assert_close(wide["grad_in0"], first["grad_in0"].double())


def test_results_that_alias_inputs_are_what_they_were():
    gm = trace(lambda x: (x[0], x.expand(2, 3)))
    result = values(run_eager(Case(gm, (torch.arange(3.0).reshape(1, 3),))))
    assert result["out1"].stride() == (0, 1)
    assert result["out0"].data_ptr() != result["in0"].data_ptr()


# --- modes


def test_modes_are_put_on_and_taken_off():
    modes = Modes(
        grad=False,
        autocast=(Autocast("cpu", "bfloat16"),),
        deterministic=True,
        seed=5,
        default_dtype="float64",
    )
    torch.manual_seed(123)
    before, state = current_modes(), torch.get_rng_state()
    with applied(modes):
        assert current_modes(seed=5) == modes
        drawn = torch.rand(3)
    assert current_modes() == before
    assert torch.equal(torch.get_rng_state(), state)
    with applied(modes):
        assert torch.equal(torch.rand(3), drawn)


def test_inference_mode_is_left_and_entered():
    with torch.inference_mode(), applied(Modes()):
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
    with applied(Modes(inference=True)):
        assert torch.is_inference_mode_enabled()


def test_a_region_that_an_error_left_open_is_closed():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(
        torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None)
    )
    graph.output(graph.call_method("view", (x, 99)))
    outcome = run_eager(Case(fx.GraphModule({}, graph), (torch.zeros(3),)))
    assert outcome.error is not None
    assert not torch.is_autocast_enabled("cpu")


def test_the_case_runs_under_its_autocast():
    case = Case(
        trace(lambda a, b: a @ b),
        (torch.randn(4, 4), torch.randn(4, 4)),
        modes=Modes(autocast=(Autocast("cpu", "bfloat16"),)),
    )
    eager = run_eager(case)
    assert values(eager)["out0"].dtype is torch.bfloat16
    assert values(run_reference(case, eager))["out0"].dtype is torch.float64


# --- references


def test_the_reference_is_the_whole_program_in_float64():
    def program(x, w):
        low = x.half().float() + torch.full(x.shape, 0.1, dtype=torch.float32)
        return low @ w.to(torch.float32), (x * 10).to(torch.int32), torch.zeros(x.shape)

    x, w = torch.rand(3), torch.rand(3, 2, dtype=torch.bfloat16)
    case = Case(trace(program), (x, w))
    result = run_eager(case, dtype=torch.float64)
    assert result.dtype is torch.float64 and not result.note
    found = values(result)
    assert found["out0"].dtype is torch.float64
    assert found["out1"].dtype is torch.int32
    assert found["out2"].dtype is torch.float64
    torch.testing.assert_close(found["out0"], (x.double() + 0.1) @ w.double(), rtol=1e-15, atol=0)


def test_a_program_without_float64_form_is_its_own_reference():
    case = Case(trace(lambda x: x.view(torch.int32) + 1), (torch.rand(3),))
    reference = run_eager(case, dtype=torch.float64)
    assert reference.dtype is None
    assert "view" in reference.note
    assert torch.equal(values(reference)["out0"], values(run_eager(case))["out0"])


def test_an_op_that_refuses_float64_is_named():
    def picky(x):
        if x.dtype is torch.float64:
            raise NotImplementedError("no double")
        return x + 1

    graph = fx.Graph()
    graph.output(graph.call_function(picky, (graph.placeholder("x"),), name="fussy"))
    gm = fx.GraphModule({}, graph)
    reference = run_eager(Case(gm, (torch.zeros(2),)), dtype=torch.float64)
    assert reference.dtype is None
    assert "node fussy (picky) refuses float64" in reference.note
    with pytest.raises(PrecisionRefused, match="fussy"):
        graph_values(gm, (torch.zeros(2),), dtype=torch.float64)


def test_the_reference_draws_the_same_numbers():
    def program(x):
        noise = torch.rand(x.shape) + torch.randn(x.shape, dtype=torch.float32)
        return F.dropout(x + noise, 0.5, True), torch.bernoulli(torch.sigmoid(x))

    case = Case(trace(program), (torch.randn(64, requires_grad=True),), modes=Modes(backward=True))
    eager = run_eager(case)
    assert eager.drew_random
    reference = run_reference(case, eager)
    assert reference.dtype is torch.float64, reference.note
    ours, theirs = values(eager), values(reference)
    for name in ("out0", "out1", "grad_in0"):
        torch.testing.assert_close(ours[name].double(), theirs[name], rtol=1e-5, atol=1e-6)


def test_random_numbers_inside_a_branch_are_not_guessed(cond_graph):
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand(3), lambda x: x * 1.0, (x,))

    captured = []
    torch._dynamo.reset()
    torch.compile(program, backend=lambda gm, _: captured.append(gm) or gm.forward)(torch.ones(3))
    reference = run_eager(Case(captured[0], (torch.ones(3),)), dtype=torch.float64)
    assert reference.results is not None
    assert reference.dtype is None
    assert "random" in reference.note


# --- every value


def test_values_are_read_right_after_their_node():
    gm = trace(lambda x, n: (x + 1, x.mul_(n)))
    x = torch.ones(2)
    found = graph_values(gm, (x, 3))
    assert torch.equal(found["add"], torch.full((2,), 2.0))
    assert torch.equal(found["x"], torch.ones(2))
    assert found["n"] == 3
    assert torch.equal(found["mul_"], torch.full((2,), 3.0))
    assert torch.equal(found["input.0"], torch.full((2,), 3.0))
    assert torch.equal(found["output.1"], torch.full((2,), 3.0))
    assert torch.equal(x, torch.ones(2))


def test_values_of_a_program_with_branches(cond_graph):
    gm, inputs = cond_graph
    found = graph_values(gm, inputs)
    assert torch.equal(found["output.0"], inputs[0] @ inputs[1])
    wide = graph_values(gm, inputs, dtype=torch.float64)
    assert wide["output.0"].dtype is torch.float64


def test_values_in_float64_replay_the_random_numbers():
    gm = trace(lambda x: torch.rand_like(x) * x)
    x = torch.rand(32)
    own, wide = graph_values(gm, (x,)), graph_values(gm, (x,), dtype=torch.float64)
    torch.testing.assert_close(own["rand_like"].double(), wide["rand_like"], rtol=0, atol=0)


# --- compiled runs


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
    assert torch.equal(eager.generators[0], compiled.generators[0])


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


def test_tangents_are_one_for_a_loss_and_in_part_for_others():
    loss = torch.zeros((), requires_grad=True)
    assert tangent(0, loss).item() == 1.0
    assert tangent(3, loss.bfloat16()).dtype is torch.bfloat16
    wide = torch.zeros(100, dtype=torch.float64)
    first = tangent(0, wide)
    assert 30 < int((first == 1.0).sum()) < 70
    assert not torch.equal(first, tangent(1, wide))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        torch.testing.assert_close(tangent(0, wide.to(dtype)).double(), first, rtol=0, atol=1e-6)
    assert torch.view_as_real(tangent(0, wide.to(torch.complex64)))[:, 1].std() > 0.5


def test_values_are_computed_in_the_modes_around_the_call():
    gm = trace(lambda a, b: (a @ b, torch.rand_like(a)))
    inputs = (torch.randn(4, 4), torch.randn(4, 4))
    with applied(Modes(seed=7, autocast=(Autocast("cpu", "bfloat16"),))):
        first, second = graph_values(gm, inputs), graph_values(gm, inputs)
        drawn = torch.rand(4, 4)
    assert first["matmul"].dtype is torch.bfloat16
    assert torch.equal(first["rand_like"], second["rand_like"])
    assert torch.equal(first["rand_like"], drawn)
    plain = graph_values(gm, inputs, modes=Modes(seed=8))
    assert plain["matmul"].dtype is torch.float32
    assert not torch.equal(plain["rand_like"], drawn)
