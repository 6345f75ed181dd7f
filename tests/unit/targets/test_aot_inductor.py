"""The target `aot_inductor`: whole programs and graphs, exported, compiled and called.

Most tests have a stand-in for the package, which runs the exported program in eager and returns
tensors for plain numbers, as AOTInductor of torch 2.13 does: a real compile takes half a minute.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ctk.compiler.errors import ConfigError, ExportRefused
from ctk.compiler.torch_compat.fx.graphs import tree_flatten, tree_unflatten
from ctk.repro_templates.program import exported_model
from ctk.repro_templates.program.exported_model import compile_package, export_model, run_exported
from ctk.repro_templates.program.program_play import How
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.layers import ask
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.importers import load_cases
from ctk.toolkit.importers.in_memory import program_of
from ctk.toolkit.operations.check import check
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.reduce.program.program_repro import ProgramFailure, render_program
from ctk.toolkit.targets.aot_inductor import TARGET

X = torch.arange(6.0).reshape(2, 3)


class Net(nn.Module):
    """A function with a buffer, a parameter and a counter."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function, self.calls = function, 0
        self.weight = nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, *args: object, **kwargs: object) -> object:
        return self.function(self, *args, **kwargs)


class StandIn:
    """A package that returns a tensor for each int and bool."""

    made: int = 0

    @staticmethod
    def change(value: Tensor) -> Tensor:
        return value

    def __init__(self, program: ExportedProgram) -> None:
        StandIn.made += 1
        self.call = program.module()

    def __call__(self, *args: object, **kwargs: object) -> object:
        leaves, form = tree_flatten(self.call(*args, **kwargs))
        return tree_unflatten([self.convert(each) for each in leaves], form)

    def convert(self, value: object) -> object:
        if isinstance(value, nn.Parameter):
            return value.data
        if isinstance(value, Tensor):
            return StandIn.change(value)
        return torch.tensor(value) if isinstance(value, int) else value

    def get_constant_fqns(self) -> list[str]:
        return []


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[StandIn]]:
    written: dict[str, ExportedProgram] = {}

    def write(program: ExportedProgram, path: str, options: object) -> None:
        written[path] = program

    monkeypatch.setattr(exported_model, "write_aot_package", write)
    monkeypatch.setattr(exported_model, "load_aot_package", lambda path: StandIn(written[path]))
    monkeypatch.setattr(StandIn, "made", 0)
    yield StandIn


def answer(function: Callable[..., object], *args: object, **how: Any) -> EndToEnd:
    program = program_of(Net(function), args or (X.clone(),))
    return ask(ProgramQuestion(program, "aot_inductor", **how))


# --- whole programs ------------------------------------------------------------------------------

NUMBERS: Mapping[str, Callable[..., object]] = {
    "an int": lambda net, x: (x + 1, 4),
    "a bool": lambda net, x: (x + 1, x.shape[0] > 1),
    "nested": lambda net, x: {"a": [x.sin(), (None, {"k": 7})]},
    "alone": lambda net, x: 4,
}


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", NUMBERS)
def test_a_tensor_for_a_number_is_a_failure_of_the_package(name: str):
    found = answer(NUMBERS[name])
    assert found.judgement.fails, str(found)
    assert found.judgement.signature is not None
    assert (found.judgement.signature.kind, found.layer, found.backend) == (
        "structure",
        "runtime",
        "",
    )
    assert found.evidence[0] == "torch.export alone (backend='export'): as eager"


def _write_all(net: Net, x: Tensor) -> object:
    net.seen.add_(x.sum(0))
    x.mul_(0.5)
    return {"a": x * net.weight + net.seen, "w": net.weight, "n": None, "v": x[1:]}


HEALTHY: Mapping[str, Callable[..., object]] = {
    "writes": _write_all,
    "random": lambda net, x: nn.functional.dropout(x),
    "the input itself": lambda net, x: (x, x.view(-1), x),
    "an empty result": lambda net, x: (x[:0], [], {}),
}


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", HEALTHY)
def test_a_program_that_a_package_holds_passes(name: str):
    assert answer(HEALTHY[name]).judgement.verdict is Verdict.PASSES


def test_a_wrong_value_is_seen_in_the_call_that_has_it(
    stand_in: type[StandIn], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stand_in, "change", staticmethod(lambda t: t + (t > 4)))
    found = answer(lambda net, x: x * 1.0)
    assert found.judgement.signature is not None and found.layer == "runtime"
    assert (found.judgement.signature.kind, found.judgement.signature.output) == (
        "accuracy",
        "call1.out0",
    )


def _count(net: Net, x: Tensor) -> object:
    net.calls += 1
    return x + net.calls


@pytest.mark.usefixtures("stand_in")
def test_python_state_that_an_export_loses_is_of_the_layer_export():
    found = answer(_count)
    assert found.judgement.fails
    assert (found.layer, found.backend) == ("export", "export")


REFUSED: Mapping[str, Callable[..., object]] = {
    "data decide a branch": lambda net, x: x + 1 if x.sum() > 0 else x - 1,
    "a number of the values": lambda net, x: x[: int(x.max().item())] * float(x[0, 0]),
    "a generator": lambda net, x: iter([x]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_torch_export_refuses_cannot_be_told(name: str):
    found = answer(REFUSED[name])
    assert found.judgement.verdict is Verdict.INVALID
    assert "torch.export refuses the program: " in found.judgement.detail


def test_an_error_of_the_compile_is_a_failure_and_a_refusal_is_none(
    monkeypatch: pytest.MonkeyPatch,
):
    def refuse(error: Exception) -> None:
        def write(program: ExportedProgram, path: str, options: object) -> None:
            raise error

        monkeypatch.setattr(exported_model, "write_aot_package", write)

    refuse(AttributeError("'NullHandler' object has no attribute 'constant_name'"))
    seen = answer(NUMBERS["an int"]).judgement.signature
    assert seen is not None
    assert (seen.kind, seen.exception) == ("compile-error", "AttributeError")
    refuse(NotImplementedError("no such device"))
    judgement = answer(NUMBERS["an int"]).judgement
    assert judgement.verdict is Verdict.INVALID
    assert judgement.detail == "AOTInductor refuses the program: no such device"


def test_a_backward_pass_is_refused_before_anything_is_compiled():
    for dynamic in (False, True):
        with pytest.raises(ExportRefused, match="a package has no gradients"):
            check(Net(_write_all), (X,), target="aot_inductor", backward=True, dynamic=dynamic)


# --- one package for each form of arguments ------------------------------------------------------


def test_a_package_is_made_again_only_for_calls_of_another_form(stand_in: type[StandIn]):
    model = Net(lambda net, x, n=2, *, flag=True: x * n if flag else x - n)
    with torch.no_grad():
        call = export_model(model, backend=compile_package)
        for number, (args, kwargs) in enumerate(
            [
                ((X,), {}),
                ((X[:1],), {}),
                ((X, 3), {}),
                ((X,), {"flag": False}),
                ((X.double(),), {}),
                ((X.mT.contiguous().mT,), {}),
            ],
            start=1,
        ):
            for _ in range(2):
                torch.testing.assert_close(call(*args, **kwargs), model(*args, **kwargs))
            assert stand_in.made == number


def test_dynamic_sizes_need_one_package_unless_the_program_fixes_them(stand_in: type[StandIn]):
    big = torch.rand(5, 3)
    with torch.no_grad():
        free = export_model(Net(lambda net, x: x.sum(0)), backend=compile_package, dynamic=True)
        fixed = export_model(Net(lambda net, x: x.view(2, 3)), backend=run_exported, dynamic=True)
        free(X), free(big)
        assert stand_in.made == 1
        fixed(X)
        with pytest.raises(ExportRefused):
            fixed(big)


def test_marked_sizes_are_dynamic(stand_in: type[StandIn]):
    x, big = X.clone(), torch.rand(5, 3)
    torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        call = export_model(Net(lambda net, x: x.sum(0)), backend=compile_package)
        call(x), call(big)
    assert stand_in.made == 1


# --- graphs --------------------------------------------------------------------------------------


def case_of(function: Callable[..., object], **request: Any) -> Case:
    (case,) = load_cases(Net(function), (X,), CaseOptions(target="aot_inductor", **request))
    return case


def test_a_graph_is_captured_without_gradients_and_judged(
    stand_in: type[StandIn], monkeypatch: pytest.MonkeyPatch
):
    case = case_of(lambda net, x: (x * net.weight).relu())
    assert not case.modes.grad
    assert judge(case).verdict is Verdict.PASSES
    monkeypatch.setattr(stand_in, "change", staticmethod(lambda t: t + 1))
    recorder = Recorder()
    assert judge(case, observer=recorder).fails
    kernels = [str(record.id) for record in recorder.log.kernels()]
    assert kernels == ["lowered/aot_inductor:captured"]
    assert (
        judge(case, observer=Recorder(veto=Veto(kernels=frozenset(kernels)))).verdict
        is Verdict.PASSES
    )


def test_a_graph_with_gradients_or_symbols_cannot_be_told():
    case = case_of(lambda net, x: (x * net.weight).relu())
    training = dataclasses.replace(case, modes=dataclasses.replace(case.modes, grad=True))
    assert judge(training).verdict is Verdict.INVALID
    assert "has no gradients" in judge(training).detail
    assert not case_of(lambda net, x: x + 1, dynamic=True).dynamic


def test_options_are_inductors():
    TARGET.check_config({"aot_inductor.debug_compile": True, "max_fusion_size": 1})
    with pytest.raises(ConfigError):
        TARGET.check_config({"aot_inductor.debug_compil": True})


# --- the script, and a real package --------------------------------------------------------------


def failure_of(path: Path) -> ProgramFailure:
    from ctk.toolkit.case.failure import Signature
    from ctk.toolkit.execution.programs.program_protocol import Plan

    signature = Signature("structure", output="call1.out", message="(Tensor, Tensor)")
    return ProgramFailure(path.read_text(), path, Plan("aot_inductor", calls=2), signature)


INT = """
import torch

def model():
    return lambda x: (x + 1, 4)

def inputs():
    return (torch.ones(3),)
"""


def test_a_script_compiles_a_package_without_ctk(tmp_path: Path):
    (tmp_path / "program.py").write_text(INT)
    text = render_program(failure_of(tmp_path / "program.py"))
    assert "export_model(model, backend=backend" in text
    assert f"exported={True}" in text and How(exported=True).exported
    assert "def compile_package(" in text and "\nfrom ctk" not in text
    compile(text, "repro.py", "exec")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_package_returns_a_tensor_for_an_int(tmp_path: Path):
    from ctk.toolkit.reduce.program.program_repro import write_program_repro

    (tmp_path / "program.py").write_text(INT)
    _, run = write_program_repro(failure_of(tmp_path / "program.py"), tmp_path / "repro")
    assert run.exit_code == 1
    assert "structure at call1.out: (Tensor, Tensor), eager gives (Tensor, int)" in run.verdict


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_package_shares_what_it_writes_to():
    model = Net(_write_all)
    twin = Net(_write_all)
    with torch.no_grad():
        call = export_model(model, backend=compile_package)
        for _ in range(2):
            x, y = X.clone(), X.clone()
            torch.testing.assert_close(call(x), twin(y))
            torch.testing.assert_close(x, y)
            torch.testing.assert_close(model.seen, twin.seen)
