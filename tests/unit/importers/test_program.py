"""capture_cases: which graphs a program gives, with which inputs and modes."""

from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule

from ctk.compiler.errors import CaptureError, ProgramError
from ctk.toolkit.case.case import Autocast, Case
from ctk.toolkit.case.usercode.named_sources import source_files
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.importers.program import capture_cases, replace_symbols, tensors_in


def program(model, *inputs, **kwargs) -> UserProgram:
    return UserProgram(model, inputs, {}, "prog", Path(__file__), kwargs)


def functions(case: Case) -> set[str]:
    return {str(getattr(node.target, "__name__", node.target)) for node in case.graph.graph.nodes}


def only(cases: list[Case]) -> Case:
    assert len(cases) == 1
    return cases[0]


class Encoder(torch.nn.Module):
    """Two layers, a graph break, a branch, a region without gradients and a mutated buffer."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        h = self.encoder(x)
        torch._dynamo.graph_break()
        with torch.no_grad():
            scale = h.std() + 1
        h = torch.cond(h.square().sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (h,))
        self.calls += 1
        return self.head(h / scale)


def test_one_graph_with_parameters_as_inputs():
    model = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    case = only(capture_cases(program(model, x), target="inductor", config={"max_fusion_size": 1}))
    assert (case.name, case.target, case.config) == ("graph0", "inductor", {"max_fusion_size": 1})
    assert {type(value) for value in case.inputs} == {torch.Tensor, torch.nn.Parameter}
    assert all(value is not x for value in case.inputs)
    assert case.modes.grad and not case.modes.backward and case.dynamic == {}
    result = run_eager(case).values["out0"]
    assert isinstance(result, torch.Tensor) and torch.equal(result, model(x).detach())


# Dynamo reads `.grad` of the tensor that crosses the graph break, and torch warns of that.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_real_model_with_a_graph_break_a_branch_and_a_dynamic_batch():
    torch.manual_seed(0)
    model, x = Encoder(), torch.randn(3, 5, 16)
    torch._dynamo.mark_dynamic(x, 0)
    expected = Encoder()
    expected.load_state_dict(model.state_dict())
    first, second = capture_cases(program(model, x), backward=True)
    assert (first.name, second.name) == ("graph0", "graph1")
    assert [sizes[1:] for sizes in first.dynamic.values()] == [(None, None)]
    assert 3 in [value for value in first.inputs if isinstance(value, int)]
    assert first.modes.backward and second.modes.backward
    assert "cond" in functions(second)
    branches = [
        m for name, m in second.graph.named_modules() if name and isinstance(m, GraphModule)
    ]
    assert len(branches) == 2
    hidden = run_eager(first).values["out0"]
    inputs = [value for value in second.inputs if isinstance(value, torch.Tensor)]
    assert any(value.shape == hidden.shape and torch.equal(value, hidden) for value in inputs)
    assert any(value.dim() == 0 and value == 0 for value in inputs), "the buffer before the call"
    assert not any(value.grad_fn for value in inputs), "inputs are leaves"


def test_a_compiled_part_is_inlined_where_dynamo_can():
    def model(x):
        half = torch.compile(lambda t: t.sin() * 2, backend="eager")
        return half(x), half(x[:2].double())

    assert "sin" in functions(only(capture_cases(program(model, torch.randn(4)))))


def test_a_recompilation_gives_another_graph():
    step = torch.compile(lambda t: t.sin() * 2, backend="aot_eager")

    @torch.compiler.disable
    def hidden(x):
        return [step(x.to(dtype)) for dtype in (torch.float32, torch.float64)]

    cases = capture_cases(program(lambda x: hidden(x), torch.randn(4)))
    assert [case.name for case in cases] == ["graph0", "graph1"]
    assert [case.inputs[0].dtype for case in cases] == [torch.float32, torch.float64]


def test_a_model_that_is_compiled_already_is_captured_all_the_same():
    model = torch.compile(torch.nn.Linear(3, 2), backend="aot_eager")
    assert "linear" in functions(only(capture_cases(program(model, torch.randn(4, 3)))))


def test_symbolic_sizes_on_request():
    case = only(capture_cases(program(lambda x: x * 2, torch.randn(4, 3)), dynamic=True))
    ((_, sizes),) = case.dynamic.items()
    assert all(size is not None for size in sizes)
    assert 4 in case.inputs and 3 in case.inputs
    static = only(capture_cases(program(lambda x: x * 2, torch.randn(4, 3))))
    assert static.dynamic == {}


def test_modes_are_those_of_the_call():
    def model(x, w):
        return x @ w

    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    with torch.no_grad():
        assert not only(capture_cases(program(model, x, w))).modes.grad
    with torch.inference_mode():
        assert only(capture_cases(program(model, x, w))).modes.inference
    with torch.autocast("cpu", dtype=torch.bfloat16):
        modes = only(capture_cases(program(model, x, w))).modes
    assert modes.autocast == (Autocast("cpu", "bfloat16"),)


def test_inputs_are_those_before_the_call():
    x = torch.zeros(3)
    case = only(capture_cases(program(lambda t: t.add_(1) * 2, x)))
    assert torch.equal(x, torch.ones(3))
    assert torch.equal(case.inputs[0], torch.zeros(3))


def test_keywords_and_nested_outputs():
    def model(*, x):
        return {"a": [x + 1], "b": (x * 2, None)}

    case = only(capture_cases(program(model, x=torch.ones(2, requires_grad=True)), backward=True))
    assert case.modes.backward


def test_the_users_generator_is_left_alone():
    state = torch.get_rng_state()
    capture_cases(program(torch.nn.Dropout(0.5), torch.ones(8)))
    assert torch.equal(state, torch.get_rng_state())


def fails(x):
    return x + torch.ones(5)


def test_a_graph_that_raises_in_eager_is_captured():
    def model(table, index):
        return table.sin().index_select(0, index) + 1

    case = only(capture_cases(program(model, torch.ones(3), torch.tensor([7]))))
    assert [node.name for node in case.graph.graph.nodes][-4:] == [
        "sin", "index_select", "add", "output",
    ]  # fmt: skip
    assert isinstance(run_eager(case).error, IndexError)


def test_a_backward_pass_that_raises_in_eager_is_captured():
    def model(x):
        y = x.exp()
        y.detach().mul_(2)
        return y

    case = only(capture_cases(program(model, torch.ones(3, requires_grad=True)), backward=True))
    assert case.modes.backward
    assert "modified by an inplace operation" in str(run_eager(case).error)


def test_a_program_that_fails_in_eager():
    with pytest.raises(ProgramError) as raised:
        capture_cases(program(fails, torch.ones(3)))
    assert "fails in eager, before any compiler sees it: RuntimeError" in str(raised.value)
    assert "return x + torch.ones(5)" in str(raised.value)


def test_a_failure_of_dynamo_is_not_blamed_on_the_program(monkeypatch: pytest.MonkeyPatch):
    def broken(*args, **kwargs):
        raise torch._dynamo.exc.InternalTorchDynamoError("a bug of Dynamo")

    monkeypatch.setattr(torch._dynamo.output_graph.OutputGraph, "compile_subgraph", broken)
    with pytest.raises(CaptureError) as raised:
        capture_cases(program(lambda x: x + 1, torch.ones(3)))
    assert "Dynamo fails while it captures test_program.py, which runs in eager" in str(
        raised.value
    )
    assert "a bug of Dynamo" in str(raised.value)


def test_nothing_to_capture():
    with pytest.raises(CaptureError, match="captured no graph"):
        capture_cases(program(lambda x: x, torch.ones(3)))
    hidden = torch.compiler.disable(lambda x: x + 1)
    with pytest.raises(CaptureError, match="captured no graph"):
        capture_cases(program(lambda x: hidden(x), torch.ones(3)))


def test_nothing_to_differentiate():
    with pytest.raises(ProgramError, match=r"no output of .* requires grad"):
        capture_cases(program(lambda x: x + 1, torch.ones(3)), backward=True)


def test_config_of_the_program_and_of_the_call():
    subject = UserProgram(
        torch.relu, (torch.ones(2),), {"fuel": 1, "verify": False}, "prog", Path(__file__)
    )
    assert only(capture_cases(subject, config={"fuel": 2})).config == {"fuel": 2, "verify": False}


def test_tensors_in_and_hinted():
    x, y = torch.ones(1), torch.ones(2)
    assert [t.numel() for t in tensors_in({"a": [x, (y, 3)], "b": None})] == [1, 2]
    assert replace_symbols([1, x, None]) == (1, x, None)


def test_source_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_backend_module.py").write_text("")
    (tmp_path / "passes.py").write_text("")
    monkeypatch.chdir(tmp_path)
    config = {"custom_passes": {"joint": ["passes.py:swap", "no_such_module:f", "json:loads"]}}
    found = source_files("my_backend_module:compile", config, tmp_path)
    assert found == (tmp_path / "my_backend_module.py", tmp_path / "passes.py")
    assert source_files("inductor", {"note": "a: b", "x": "torch.add:out"}, tmp_path) == ()
