"""The Inductor target: one observed compile tells passes, matches, kernels, errors; vetoes hold."""

import re

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, symbolic_trace

from ctk.compiler.observe import PassRecord
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.targets.inductor.target import TARGET
from tests.helpers.inductor_programs import (
    BACKWARD,
    FORWARD,
    RELU_BUG,
    assert_chained,
    attention,
    attention_inputs,
    captured,
    names,
    observe,
    permuted_attention,
    raising_match,
    relu_inputs,
    relu_net,
    shuffled,
    slice_scatter,
)
from tests.helpers.torch_bugs import PERMUTED_KEY

# --- real bugs: the pass is named, and without it the results are right ---------------------------


def test_reinplace_is_named_and_vetoed():
    inputs = torch.arange(24.0).reshape(4, 6), -torch.arange(12.0).reshape(2, 6)
    expected = slice_scatter(inputs[0].clone(), inputs[1])
    guilty = "forward/reinplace_inplaceable_ops"
    compiled, recorder = observe(slice_scatter, inputs)
    assert guilty in names(recorder)
    assert not torch.equal(compiled(inputs[0].clone(), inputs[1]), expected)
    compiled, recorder = observe(slice_scatter, inputs, Veto(passes=frozenset({guilty})))
    [record] = [p for p in recorder.log.passes() if p.vetoed]
    assert str(record.id) == guilty
    assert record.before is record.after
    assert torch.equal(compiled(inputs[0].clone(), inputs[1]), expected)


def test_one_rewrite_of_an_opaque_pass_can_be_vetoed():
    inputs = torch.arange(24.0).reshape(4, 6), -torch.arange(12.0).reshape(2, 6)
    expected = slice_scatter(inputs[0].clone(), inputs[1])
    _, recorder = observe(slice_scatter, inputs)
    [record] = [p for p in recorder.log.passes() if p.id.name == "reinplace_inplaceable_ops"]
    [guilty] = [r.id.number for r in record.rewrites if "slice_scatter" in r.nodes]
    compiled, recorder = observe(slice_scatter, inputs, Veto(rewrites=frozenset({guilty})))
    vetoed = [r for p in recorder.log.passes() for r in p.rewrites if r.vetoed]
    assert [r.id.number for r in vetoed] == [guilty]
    assert torch.equal(compiled(inputs[0].clone(), inputs[1]), expected)


def fusions(recorder: Recorder) -> list[PassRecord]:
    return [p for p in recorder.log.passes() if p.id.name.startswith("fuse_attention.")]


def test_a_match_is_named_after_its_pattern_and_no_sibling_takes_its_place():
    inputs = attention_inputs()
    with torch.no_grad():
        _, recorder = observe(attention, inputs)
        [fused] = fusions(recorder)
        assert re.fullmatch(r"joint/fuse_attention\._sfdp_pattern_\d+", str(fused.id))
        [rewrite] = fused.rewrites
        assert set(rewrite.nodes) <= {n.name for n in fused.before.graph.nodes}
        for veto in (
            Veto(passes=frozenset({str(fused.id)})),
            Veto(rewrites=frozenset({rewrite.id.number})),
        ):
            compiled, recorder = observe(attention, inputs, veto)
            assert [p.changed for p in fusions(recorder)] == [False]
            torch.testing.assert_close(compiled(*inputs), attention(*inputs))


@PERMUTED_KEY.is_needed
def test_a_wrong_fusion_is_vetoed():
    inputs = attention_inputs()
    with torch.no_grad():
        [expected] = permuted_attention(*inputs)
        compiled, recorder = observe(permuted_attention, inputs)
        [fused] = fusions(recorder)
        assert not torch.allclose(compiled(*inputs)[0], expected, atol=1e-3)
        veto = Veto(passes=frozenset({str(fused.id)}))
        compiled, _ = observe(permuted_attention, inputs, veto)
        torch.testing.assert_close(compiled(*inputs)[0], expected)


def test_an_exception_in_a_pattern_check_is_located_and_avoided():
    x = torch.rand(32, 8)
    guilty = "joint/misc_patterns.randperm_index_pattern"
    with raising_match():
        with pytest.raises(RuntimeError, match="the match raises") as caught:
            observe(shuffled(), [x])
        assert caught.value.ctk_where == guilty
        assert guilty in "".join(caught.value.__notes__)
        recorder = Recorder()
        with pytest.raises(RuntimeError):
            TARGET.compile(shuffled(), [x], config={}, observer=recorder)
        [error] = recorder.log.errors()
        assert (str(error.pass_id), error.node, error.stage) == (guilty, "index", "joint")
        assert error.rewrite is not None
        for veto in (
            Veto(passes=frozenset({guilty})),
            Veto(rewrites=frozenset({error.rewrite.number})),
        ):
            compiled, recorder = observe(shuffled(), [x], veto)
            assert compiled(x).shape == (10, 8)
            assert {str(each.pass_id) for each in recorder.log.errors()} <= {
                "forward/misc_patterns.randperm_index_pattern"
            }


# --- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["compile_error", "runtime_error", "accuracy"])
def test_relu_bug_is_located_at_the_kernel(mode: str):
    inputs = relu_inputs()
    expected = relu_net(*inputs)
    config = {RELU_BUG.replace(".", "__"): mode}
    if mode == "accuracy":
        compiled, recorder = observe(relu_net, inputs, **config)
        assert not torch.allclose(compiled(*inputs), expected)
        [call] = recorder.log.calls()
        replayed = Interpreter(call.graph).run(*call.inputs)
        torch.testing.assert_close(replayed[0], expected)
        assert not torch.allclose(call.outputs[0], replayed[0])
    else:
        recorder = Recorder()
        kind = {"compile_error": "CppCompileError", "runtime_error": "RuntimeError"}[mode]
        with pytest.raises(RuntimeError) as caught:
            TARGET.compile(
                symbolic_trace(relu_net), inputs, config={RELU_BUG: mode}, observer=recorder
            )(*inputs)
        assert type(caught.value).__name__ == kind
        [error] = recorder.log.errors()
        assert caught.value.ctk_where == str(error.kernel) == FORWARD
        assert (error.stage, error.error) == ("lowered", caught.value)
    compiled, recorder = observe(relu_net, inputs, Veto(kernels=frozenset({FORWARD})), **config)
    torch.testing.assert_close(compiled(*inputs), expected)
    assert [(str(k.id), k.vetoed) for k in recorder.log.kernels()] == [(FORWARD, True)]


@pytest.mark.parametrize("kernels", [set(), {FORWARD}, {BACKWARD}, {FORWARD, BACKWARD}])
def test_training_with_a_lazily_compiled_backward(kernels: set[str]):
    x, w = relu_inputs(grad=True)
    (expected,) = torch.autograd.grad(relu_net(x, w).sum(), w)
    compiled, recorder = observe(relu_net, (x, w), Veto(kernels=frozenset(kernels)))
    (gradient,) = torch.autograd.grad(compiled(x, w).sum(), w)
    torch.testing.assert_close(gradient, expected)
    stages = [s.stage for s in recorder.log.stages()]
    assert stages == ["captured", "pre_grad", "joint", "forward", "lowered", "backward", "lowered"]
    assert {str(k.id): k.vetoed for k in recorder.log.kernels() if not k.nodes} == {
        FORWARD: FORWARD in kernels,
        BACKWARD: BACKWARD in kernels,
    }
    assert [c.stage for c in recorder.log.calls()] == ["forward", "backward"]
    for call in recorder.log.calls():
        with torch.no_grad():
            replayed = Interpreter(call.graph).run(*call.inputs)
        torch.testing.assert_close(tuple(replayed), call.outputs)


# --- the record ----------------------------------------------------------------------------------


def branches(x: Tensor, w: Tensor) -> Tensor:
    def hot(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(x @ w).view(-1) + 0

    def cold(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).sin().view(-1) * 1

    return torch.cond(x.sum() > 0, hot, cold, (x, w))


def test_records_form_a_chain_and_name_what_nobody_announced():
    recorder = captured(relu_net, *relu_inputs())
    assert_chained(recorder)
    assert "forward/view_to_reshape" in names(recorder)
    assert not [n for n in names(recorder, changed=False) if "pass_pattern" in n]
    numbers = [r.id.number for p in recorder.log.passes() for r in p.rewrites]
    assert numbers == sorted(set(numbers))


def test_a_pass_that_inductor_does_not_announce_is_vetoed():
    x, w = relu_inputs()
    _, recorder = observe(relu_net, (x, w))
    seen = names(recorder, changed=False)
    assert {"pre_grad/quant_lift_up", "joint/canonicalize_aten_ir_passes"} <= set(seen)
    assert "forward/view_to_reshape" in seen
    assert not [name for name in seen if "unannounced" in name]
    veto = Veto(passes=frozenset({"forward/view_to_reshape"}))
    compiled, recorder = observe(relu_net, (x, w), veto)
    [record] = [p for p in recorder.log.passes() if p.vetoed]
    assert record.before is record.after
    assert_chained(recorder)
    torch.testing.assert_close(compiled(x, w), relu_net(x, w))


@pytest.mark.slow
def test_passes_over_branches_belong_to_the_whole_graph():
    with torch.no_grad():
        recorder = captured(branches, *relu_inputs())
    assert_chained(recorder)
    changed = [p for p in recorder.log.passes() if p.changed]
    assert changed
    for record in changed:
        children = [m for m in record.after.children() if isinstance(m, GraphModule)]
        assert len(children) == 2
    rules = [r.id.rule for p in changed for r in p.rewrites]
    assert any(" in " in rule for rule in rules)


def test_symbolic_sizes():
    recorder = captured(relu_net, *relu_inputs(), dynamic=True)
    assert_chained(recorder)
    [call] = recorder.log.calls()
    assert any(isinstance(value, int) for value in call.inputs)


@pytest.mark.slow
def test_every_pass_and_every_rewrite_can_be_vetoed_alone():
    x, w = relu_inputs(grad=True)
    (expected,) = torch.autograd.grad(relu_net(x, w).sum(), w)
    compiled, recorder = observe(relu_net, (x, w))
    torch.autograd.grad(compiled(x, w).sum(), w)
    passes = [p for p in recorder.log.passes() if p.changed]
    vetoes = [Veto(passes=frozenset({str(p.id)})) for p in passes]
    vetoes += [Veto(rewrites=frozenset({r.id.number})) for p in passes for r in p.rewrites]
    assert len(vetoes) > 4
    for veto in [*vetoes, Veto(fuel=0)]:
        compiled, again = observe(relu_net, (x, w), veto)
        (gradient,) = torch.autograd.grad(compiled(x, w).sum(), w)
        torch.testing.assert_close(gradient, expected)
        assert_chained(again)
        refused = [p for p in again.log.passes() if p.vetoed or any(r.vetoed for r in p.rewrites)]
        assert refused, veto


class Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.a(x) + self.b(x))


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN's patterns")
def test_what_only_inductor_can_run_is_written_out():
    model, x = Convolutions().eval(), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        compiled, recorder = observe(symbolic_trace(model), [x], freezing=True)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        [call] = recorder.log.calls()
        replayed = Interpreter(call.graph).run(*call.inputs)
    torch.testing.assert_close(replayed[0], call.outputs[0], rtol=1e-4, atol=1e-5)
    assert "frozen" in [s.stage for s in recorder.log.stages()]
    [fused] = [n for n in names(recorder) if "_fusion_lowering" in n]
    assert fused.startswith("forward/mkldnn_fusion.")
    assert {"add", "relu"} <= {n.name for n in call.graph.graph.nodes}
    with torch.no_grad():
        compiled, recorder = observe(
            symbolic_trace(model), [x], Veto(passes=frozenset({fused})), freezing=True
        )
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert fused not in names(recorder)


def test_frozen_inputs_stay_frozen_whatever_is_vetoed():
    model, x = Convolutions().eval(), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        compiled, _ = observe(symbolic_trace(model), [x], Veto(fuel=0), freezing=True)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
