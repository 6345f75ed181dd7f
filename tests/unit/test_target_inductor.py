"""The Inductor target: one observed compile tells passes, matches, kernels, errors; vetoes hold."""

import gc
import logging
import operator
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Interpreter, symbolic_trace

from compiler import torch_compat
from compiler.errors import ConfigError
from compiler.observe import PassRecord, StageRecord
from compiler.passes.graph_diff import same_graph
from toolkit.log import Recorder, Veto
from toolkit.targets.base import Compiled
from toolkit.targets.inductor import TARGET
from toolkit.targets.inductor_hooks import installed
from toolkit.targets.inductor_session import Session

Inputs = tuple[Tensor, ...]
RELU_BUG = "cpp.inject_relu_bug_TESTING_ONLY"
FORWARD, BACKWARD = "lowered/inductor:forward", "lowered/inductor:backward"


def observe(
    function: Callable[..., object],
    inputs: Sequence[object],
    veto: Veto | None = None,
    **config: object,
) -> tuple[Compiled, Recorder]:
    recorder = Recorder(veto, keep_calls=True, keep_rewrites=True)
    options = {key.replace("__", "."): value for key, value in config.items()}
    gm = function if isinstance(function, GraphModule) else symbolic_trace(function)
    return TARGET.compile(gm, list(inputs), config=options, observer=recorder), recorder


def names(recorder: Recorder, *, changed: bool = True) -> list[str]:
    return [str(p.id) for p in recorder.log.passes() if p.changed or not changed]


def attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor]:
    scores = torch.matmul(query, key.transpose(-2, -1)).div(2.0)
    return (scores.softmax(-1).matmul(value),)


def permuted_attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor]:
    """Issue 195320: a key that is permuted where the pattern transposes."""
    scores = torch.matmul(query.permute(0, 2, 1, 3), key.permute(0, 2, 3, 1)) * 0.5
    return (torch.matmul(scores.softmax(-1), value.permute(0, 2, 1, 3)),)


def attention_inputs() -> Inputs:
    torch.manual_seed(0)
    return tuple(torch.randn(2, 4, 4, 8) for _ in range(3))


def slice_scatter(x: Tensor, source: Tensor) -> Tensor:
    """Issue 198094: the result is written into `x`, which is then zeroed."""
    y = torch.slice_scatter(x, source, dim=0, start=1, end=3)
    x.zero_()
    return y


def shuffled() -> GraphModule:
    """Issue 188223, `x[torch.randperm(10)]`: the check of a pattern raises."""
    graph = Graph()
    x = graph.placeholder("x")
    order = graph.call_function(torch.randperm, (10,))
    graph.output(graph.call_function(operator.getitem, (x, order)))
    return GraphModule({}, graph)


def relu_net(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x @ w).view(-1).softmax(-1).pow(2)


def relu_inputs(*, grad: bool = False) -> Inputs:
    torch.manual_seed(0)
    return torch.randn(3, 4), torch.randn(4, 5, requires_grad=grad)


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


@pytest.mark.skipif(torch.__version__ < "2.13", reason="the bug came with torch 2.13's pattern")
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
    with pytest.raises(RuntimeError, match="Not all inputs to pattern found") as caught:
        observe(shuffled(), [x])
    guilty = "joint/misc_patterns.randperm_index_pattern"
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
        assert not recorder.log.errors()


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
    assert {str(k.id): k.vetoed for k in recorder.log.kernels()} == {
        FORWARD: FORWARD in kernels,
        BACKWARD: BACKWARD in kernels,
    }
    assert [c.stage for c in recorder.log.calls()] == ["forward", "backward"]
    for call in recorder.log.calls():
        with torch.no_grad():
            replayed = Interpreter(call.graph).run(*call.inputs)
        torch.testing.assert_close(tuple(replayed), call.outputs)


# --- the record ----------------------------------------------------------------------------------


def assert_chained(recorder: Recorder) -> None:
    last: dict[str, GraphModule] = {}
    for event in recorder.log.events:
        if isinstance(event, StageRecord):
            last[event.stage] = event.graph
        elif isinstance(event, PassRecord):
            assert event.before is last[event.id.stage], event.id
            assert event.changed != same_graph(event.before, event.after), event.id
            last[event.id.stage] = event.after
            kept = [r for r in event.rewrites if not r.vetoed and r.after is not None]
            if event.changed and kept and kept[-1].after is not None:
                assert same_graph(kept[-1].after(), event.after), event.id


def branches(x: Tensor, w: Tensor) -> Tensor:
    def hot(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(x @ w).view(-1) + 0

    def cold(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).sin().view(-1) * 1

    return torch.cond(x.sum() > 0, hot, cold, (x, w))


def captured(function: Callable[..., object], *inputs: object, dynamic: bool = False) -> Recorder:
    """Capture with Dynamo and compile under watch; compare with eager."""
    recorder = Recorder(keep_calls=True, keep_rewrites=True)

    def backend(gm: GraphModule, example_inputs: list[object]) -> Compiled:
        return TARGET.compile(gm, example_inputs, config={}, observer=recorder)

    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(function, backend=backend, dynamic=dynamic)(*inputs), function(*inputs)
    )
    return recorder


def test_records_form_a_chain_and_name_what_nobody_announced():
    recorder = captured(relu_net, *relu_inputs())
    assert_chained(recorder)
    assert "forward/unannounced_before_post_grad" in names(recorder)  # view -> reshape
    assert not [n for n in names(recorder, changed=False) if "pass_pattern" in n]
    numbers = [r.id.number for p in recorder.log.passes() for r in p.rewrites]
    assert numbers == sorted(set(numbers))


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


# --- it only watches -----------------------------------------------------------------------------


def sites() -> list[torch_compat.Site]:
    s = torch_compat.inductor_sites()
    single = [s.pre_grad, s.joint, s.post_grad, s.freeze, s.gm_pass, s.graph_pass]
    return [*single, s.enter, s.exit, s.pattern_pass, *s.pattern_setup]


def installed_functions() -> list[object]:
    return [vars(site.owner)[site.name] for site in sites()]


def test_nothing_stays_wrapped_also_not_after_an_exception():
    before = installed_functions()
    observe(relu_net, relu_inputs())
    assert installed_functions() == before
    with pytest.raises(RuntimeError):
        observe(shuffled(), [torch.rand(32, 8)])
    assert installed_functions() == before
    for table in pattern_tables():
        for entries in table.patterns.values():
            for entry in entries:
                assert "apply" not in vars(entry)
                assert "match" not in vars(entry.pattern)


def pattern_tables() -> list[object]:
    kind = torch_compat.inductor_sites().pattern_pass.owner
    return [item for item in gc.get_objects() if type(item) is kind]


def test_without_an_observer_nothing_is_wrapped():
    before = installed_functions()
    seen: list[list[object]] = []

    def look(_graph: object) -> None:
        seen.append(installed_functions())

    config = {"joint_custom_pre_pass": look}
    inputs = relu_inputs()
    TARGET.compile(symbolic_trace(relu_net), inputs, config=config, observer=None)
    assert seen == [before]
    TARGET.compile(symbolic_trace(relu_net), inputs, config=config, observer=Recorder())
    assert seen[1] != before


def test_other_threads_are_not_recorded():
    session, seen = Session(Recorder()), list[bool]()
    with installed(session):
        assert session.is_watching()
        thread = threading.Thread(target=lambda: seen.append(session.is_watching()))
        thread.start()
        thread.join()
    assert seen == [False]
    assert not session.is_watching()


def test_observation_does_not_change_the_generated_code(caplog: pytest.LogCaptureFixture):
    inputs = relu_inputs()
    with torch.no_grad():
        _, recorder = observe(relu_net, inputs)
        [kernel] = recorder.log.kernels()
        logger = logging.getLogger("torch._inductor.codecache.__output_code")
        records: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]  # a test double
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            TARGET.compile(symbolic_trace(relu_net), inputs, config={}, observer=None)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
    [code] = [r.removeprefix("Output code: \n") for r in records if r.startswith("Output code: ")]
    assert without_counter(code) == without_counter(kernel.source or "")


def without_counter(code: str) -> str:
    return re.sub(r"# AOT ID: .*", "", code).strip()


# --- the user's own passes, options ---------------------------------------------------------------


def test_an_exception_in_a_custom_pass_keeps_its_type():
    def broken(graph: torch.fx.Graph) -> None:
        raise ZeroDivisionError("no such scale")

    recorder = Recorder()
    with pytest.raises(ZeroDivisionError, match="no such scale") as caught:
        TARGET.compile(
            symbolic_trace(relu_net),
            relu_inputs(),
            config={"post_grad_custom_post_pass": broken},
            observer=recorder,
        )
    assert caught.value.ctk_where == "forward/post_grad_custom_post_pass"
    [error] = recorder.log.errors()
    assert error.graph is not None
    assert str(error.pass_id) == caught.value.ctk_where


def test_a_custom_pass_is_loaded_from_a_file(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "def drop_relu(graph):\n"
        "    relu = torch.ops.aten.relu.default\n"
        "    for node in graph.find_nodes(op='call_function', target=relu):\n"
        "        node.replace_all_uses_with(node.args[0])\n"
        "        graph.erase_node(node)\n"
    )
    inputs = relu_inputs()
    name = f"{file}:drop_relu"
    compiled, recorder = observe(relu_net, inputs, post_grad_custom_pre_pass=name)
    assert not torch.allclose(compiled(*inputs), relu_net(*inputs))
    [record] = [p for p in recorder.log.passes() if "custom" in p.id.name and p.changed]
    veto = Veto(rewrites=frozenset(r.id.number for r in record.rewrites))
    compiled, _ = observe(relu_net, inputs, veto, post_grad_custom_pre_pass=name)
    torch.testing.assert_close(compiled(*inputs), relu_net(*inputs))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"cpp.inject_relu_bug": "accuracy"}, "did you mean 'cpp.inject_relu_bug_TESTING_ONLY'"),
        ({"max_autotune": "yes"}, "expected bool; its default is False"),
        ({"compile_threads": "two"}, "'compile_threads' of target inductor: got 'two' (str)"),
        ({"compile_threads": True}, "got True (bool)"),
    ],
)
def test_a_wrong_option_says_what_is_allowed(config: dict[str, object], says: str):
    with pytest.raises(ConfigError) as caught:
        TARGET.check_config(config)
    assert says in str(caught.value)
    with pytest.raises(ConfigError):
        TARGET.compile(symbolic_trace(relu_net), relu_inputs(), config=config, observer=None)


def test_the_defaults_of_all_options_are_accepted():
    for name, (value, _) in torch_compat.inductor_options().items():
        TARGET.check_config({name: value})
