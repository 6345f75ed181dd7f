"""compile_fx and the backend: right results in every stage, vetoes, fuel, failures, fallbacks."""

import logging
import re
import sys
from dataclasses import dataclass

import pytest
import torch
from torch import fx, nn

from ctk import Config, compile_fx
from ctk.compiler.backend import ctk
from ctk.compiler.errors import ConfigError, UnsupportedPlatform, VerifyError
from ctk.compiler.freezing.freeze import frozen_parameters
from ctk.compiler.fx.walk import input_names
from ctk.compiler.observe import ErrorRecord
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.toolkit.compile_log.recorder import Recorder, Veto

aten = torch.ops.aten


def encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def run(model, *inputs, observer=None, config=None, **options):
    """Compile with Dynamo and our pipeline, and call once."""

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, config, observer)

    return torch.compile(model, backend=backend, **options)(*inputs)


@pytest.mark.parametrize("codegen", ["eager", "torchscript"])
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_training_gives_eagers_results_and_gradients(codegen, dynamic):
    model, x = encoder(), torch.randn(2, 5, 16)
    expected = model(x)
    expected.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    compiled = torch.compile(model, backend="ctk", dynamic=dynamic, options={"codegen": codegen})
    result = compiled(x)
    result.sum().backward()
    torch.testing.assert_close(result, expected)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_inference_with_another_batch_size():
    model = encoder().eval()
    compiled = torch.compile(model, backend="ctk", dynamic=True)
    with torch.no_grad():
        for batch in (2, 3, 7):
            x = torch.randn(batch, 5, 16)
            torch.testing.assert_close(compiled(x), model(x))


def test_the_backend_is_registered():
    assert "ctk" in torch.compiler.list_backends()


def test_stages_are_announced_in_order():
    recorder = Recorder()
    run(encoder(), torch.randn(2, 5, 16), observer=recorder).sum().backward()
    stages = [record.stage for record in recorder.log.stages()]
    assert stages[:4] == ["captured", "pre_grad", "joint", "forward"]
    assert "backward" in stages
    assert stages.count("lowered") == 2


def test_input_mutation_and_aliasing_are_kept():
    def program(x, y):
        x.mul_(2)
        view = y[1:]
        view.add_(1)
        return x + 1, view

    for grad in (False, True):
        x, y = torch.randn(4), torch.randn(4)
        ours, eagers = (x.clone(), y.clone()), (x.clone(), y.clone())
        with torch.set_grad_enabled(grad):
            result = run(program, *ours)
            expected = program(*eagers)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(ours, eagers)
        assert result[1].untyped_storage().data_ptr() == ours[1].untyped_storage().data_ptr()


def test_cond_and_its_subgraphs():
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: (x * 1).exp() + x.exp(), lambda x: x - 1, (x,))

    recorder = Recorder()
    x = torch.ones(4)
    for value in (x, -x):
        torch.testing.assert_close(run(program, value, observer=recorder), program(value))
    touched = [r for p in recorder.log.passes() for r in p.rewrites]
    assert touched, "passes look into sub-graphs"


def test_while_loop():
    def program(x):
        return torch.while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x)
        )

    with torch.no_grad():
        result = run(program, torch.ones(3))
        torch.testing.assert_close(result[1], torch.full((3,), 8.0))


def test_a_symbolically_traced_graph_without_dynamo():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5)).eval()
    gm, x = fx.symbolic_trace(model), torch.randn(2, 4)
    text = str(gm.graph)
    torch.testing.assert_close(compile_fx(gm, [x])(x), model(x))
    assert str(gm.graph) == text, "the graph that was handed in is not changed"


def test_freezing_folds_parameters():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval(), torch.randn(3, 4)
    recorder = Recorder(keep_calls=True)
    with torch.no_grad():
        result = run(model, x, observer=recorder, config={"freezing": True})
        torch.testing.assert_close(result, model(x))
    (call,) = recorder.log.calls()
    assert call.stage == "frozen"
    assert len(call.inputs) == 1
    (frozen,) = (stage.graph for stage in recorder.log.stages() if stage.stage == "frozen")
    (forward,) = (stage.graph for stage in recorder.log.stages() if stage.stage == "forward")
    names = [name for index, name in enumerate(input_names(forward)) if index != 2]  # the input
    found = frozen_parameters(frozen)
    assert list(found) == names
    assert all(torch.equal(found[n], p) for n, p in zip(names, model.parameters(), strict=True))


def double_add(gm):
    for node in list(gm.graph.nodes):
        if node.target is aten.add.Tensor:
            node.target = aten.sub.Tensor


def sums(x):
    return (x + 1).sin() + (x + 2).cos()


def results_with(**options):
    with torch.no_grad():
        return run(
            sums, torch.zeros(2), config={"custom_passes": {"joint": [double_add]}, **options}
        )


@pytest.mark.parametrize("fuel", range(4))
def test_fuel_stops_an_opaque_pass_after_so_many_rewrites(fuel):
    signs = [-1 if index < fuel else 1 for index in range(3)]
    x = torch.zeros(2)
    expected = (x + signs[0] * 1).sin() + signs[2] * (x + signs[1] * 2).cos()
    torch.testing.assert_close(results_with(fuel=fuel), expected)


@pytest.mark.parametrize("name", ["double_add", "joint/double_add"])
def test_disable_leaves_a_pass_out(name):
    torch.testing.assert_close(results_with(disable=[name]), sums(torch.zeros(2)))


def test_an_observer_vetoes_single_rewrites_by_number():
    recorder = Recorder()
    config = {"custom_passes": {"joint": [double_add]}}
    x = torch.zeros(2)
    with torch.no_grad():
        run(sums, x, observer=recorder, config=config)
        (record,) = [p for p in recorder.log.passes() if p.id.name == "double_add"]
        numbers = [r.id.number for r in record.rewrites]
        without_second = Recorder(Veto(rewrites=frozenset({numbers[1]})))
        result = run(sums, x, observer=without_second, config=config)
    torch.testing.assert_close(result, (x - 1).sin() - (x + 2).cos())
    (again,) = [p for p in without_second.log.passes() if p.id.name == "double_add"]
    assert [r.id.number for r in again.rewrites] == numbers, "a veto moves no number"
    assert [r.vetoed for r in again.rewrites] == [False, True, False]


def test_a_vetoed_kernel_runs_as_eager():
    first = Recorder()
    x = torch.randn(3)
    with torch.no_grad():
        run(sums, x, observer=first)
        kernel = str(first.log.kernels()[0].id)
        second = Recorder(Veto(kernels=frozenset({kernel})))
        run(sums, x, observer=second)
    assert all(k.vetoed for k in second.log.kernels())


def raising(gm):
    raise ZeroDivisionError("one by zero")


def test_an_exception_in_a_pass_keeps_its_type_and_names_the_pass():
    recorder = Recorder()
    gm, x = fx.symbolic_trace(sums), torch.zeros(2)
    with pytest.raises(ZeroDivisionError) as caught:
        compile_fx(gm, [x], {"custom_passes": {"joint": [raising]}}, recorder)
    assert caught.value.ctk_where == "joint/raising"
    (note,) = caught.value.__notes__
    assert "in pass joint/raising" in note
    assert "call_function" in note
    (record,) = recorder.log.errors()
    assert isinstance(record, ErrorRecord)
    assert str(record.pass_id) == "joint/raising"
    assert record.graph is not None


def boom(rewriter: Rewriter) -> None:
    for node in rewriter.nodes():
        if node.target is aten.cos.default:

            def edit(graph):
                raise KeyError("lost")

            rewriter.rewrite("cos(x) -> lost", [node], edit)


def test_an_exception_in_a_rewrite_names_rewrite_and_node():
    recorder = Recorder()
    with pytest.raises(KeyError) as caught:
        compile_fx(
            fx.symbolic_trace(sums),
            [torch.zeros(2)],
            {"custom_passes": {"joint": [boom]}},
            recorder,
        )
    assert "rewrite 1 (joint/boom, its 1: cos(x) -> lost), at node cos" in caught.value.__notes__[0]
    assert recorder.log.errors()[0].node == "cos"


def test_on_failure_fallback_compiles_without_the_stage_and_says_so(caplog):
    caplog.set_level(logging.WARNING)
    x = torch.zeros(2)
    result = run(sums, x, config={"custom_passes": {"joint": [raising]}, "on_failure": "fallback"})
    torch.testing.assert_close(result, sums(x))
    (message,) = [r.getMessage() for r in caplog.records if r.name == "ctk.pipeline"]
    assert "stage joint failed" in message
    assert "ZeroDivisionError: one by zero" in message
    assert "joint/raising" in message


class Interfering(Recorder):
    def on_pass(self, record):
        raise ZeroDivisionError("in the observer")


def test_what_an_observer_raises_is_no_failure_to_fall_back_from():
    with pytest.raises(ZeroDivisionError) as caught:
        compile_fx(
            fx.symbolic_trace(sums), [torch.zeros(2)], {"on_failure": "fallback"}, Interfering()
        )
    assert "raised by the observer, in Interfering.on_pass" in caught.value.__notes__[0]


def test_on_failure_warn():
    with pytest.warns(RuntimeWarning, match="stage joint failed"):
        run(
            sums,
            torch.zeros(2),
            config={"custom_passes": {"joint": [raising]}, "on_failure": "warn"},
        )


def ill_formed(gm):
    named = list(gm.graph.nodes)
    named[1].name = named[0].name


def narrower(gm):
    for node in gm.graph.nodes:
        if node.target is aten.sin.default:
            node.target = aten.sum.default


@pytest.mark.parametrize(
    ("broken", "expected"),
    [(ill_formed, "left an ill-formed graph"), (narrower, "changed the type of")],
)
def test_the_verifier_names_the_pass(broken, expected):
    with pytest.raises(VerifyError, match=expected) as caught:
        compile_fx(
            fx.symbolic_trace(sums), [torch.zeros(2)], {"custom_passes": {"joint": [broken]}}
        )
    assert f"joint/{broken.__name__}" in str(caught.value)


def test_the_verifier_can_be_switched_off():
    config = Config(verify=False, codegen="eager").patch(custom_passes={"joint": [narrower]})
    compile_fx(fx.symbolic_trace(sums), [torch.zeros(2)], config)(torch.zeros(2))


def test_custom_passes_by_reference(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def rename(graph):\n    graph.lint()\n")
    recorder = Recorder()
    config = {"custom_passes": {"post_grad": [f"{file}:rename", f"{__name__}:boomless"]}}
    compile_fx(fx.symbolic_trace(sums), [torch.zeros(2)], config, recorder)
    names = {p.id.name for p in recorder.log.passes() if p.id.stage == "forward"}
    assert {"rename", "boomless"} <= names


def boomless(rewriter: Rewriter) -> None:
    assert rewriter.module is not None


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("nowhere.py:f", "no such file: nowhere.py"),
        ("no_such_module:f", "cannot be imported"),
        ("math:sinn", "did you mean"),
        ("unknown_entry", "not an entry point"),
    ],
)
def test_a_custom_pass_that_cannot_be_found(reference, expected):
    with pytest.raises(ConfigError, match=expected):
        compile_fx(
            fx.symbolic_trace(sums), [torch.zeros(2)], {"custom_passes": {"joint": [reference]}}
        )


@dataclass(frozen=True)
class Mine(Pass):
    name = "mine"

    def run(self, rewriter: Rewriter) -> None:
        boomless(rewriter)


def test_a_pass_object_or_class_runs_with_its_name():
    recorder = Recorder()
    config = {"custom_passes": {"joint": [Mine()], "forward": [Mine]}}
    compile_fx(fx.symbolic_trace(sums), [torch.zeros(2)], config, recorder)
    mine = [p for p in recorder.log.passes() if p.id.name == "mine"]
    assert [(str(p.id), p.numerics) for p in mine] == [
        ("joint/mine", "exact"),
        ("forward/mine", "exact"),
    ]


class Nameless(Pass):
    def run(self, rewriter: Rewriter) -> None:
        raise AssertionError("not reached")


@dataclass(frozen=True)
class Needy(Mine):
    size: int


class Unfinished(Pass):
    name = "unfinished"


class Misspelt(Mine):
    numerics = "reasociates"  # type: ignore[assignment]  # wrong on purpose


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (Nameless(), "has no name; write in its class: name ="),
        (Misspelt(), "declares numerics 'reasociates', which is not one of exact, reassociates"),
        (Needy, "each of its options has a default"),
        (Unfinished, "a pass has a method run(self, rewriter)"),
    ],
)
def test_a_class_that_is_no_whole_pass_says_what_is_missing(entry, expected):
    with pytest.raises(ConfigError, match=re.escape(expected)):
        run_with({"custom_passes": {"joint": [entry]}})


def run_with(config):
    return compile_fx(fx.symbolic_trace(sums), [torch.zeros(2)], config)


def test_windows_gets_a_clear_error(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UnsupportedPlatform, match="WSL2"):
        ctk(fx.symbolic_trace(sums), [torch.zeros(2)])


def test_an_unknown_mode_is_refused():
    with pytest.raises(ConfigError, match="max-autotune"):
        ctk(fx.symbolic_trace(sums), [torch.zeros(2)], mode="max-autotun")
