"""ctk.save_case of a call that has failed: its arguments, modes and exception."""

import contextlib
from pathlib import Path

import pytest
import torch

import ctk
from ctk.compiler.errors import ProgramError, TargetError
from ctk.toolkit.case.store import load_case
from ctk.toolkit.operations.save_case import SavedCase
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.watch.hooks import install


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    torch.compiler.reset()
    monkeypatch.chdir(tmp_path)


def refuses_large(gm, example_inputs):
    def run(*args):
        if any(isinstance(each, torch.Tensor) and float(each.max()) > 7 for each in args):
            raise ArithmeticError("no kernel for large numbers")
        return gm.forward(*args)

    return run


def raises_after_writing(gm, example_inputs):
    def run(x):
        is_large = float(x.max()) > 7
        results = gm.forward(x)
        if is_large:
            raise ArithmeticError("no kernel for large numbers")
        return results

    return run


def does_not_compile(gm, example_inputs):
    raise NotImplementedError("no lowering")


def wrong_by_one(gm, example_inputs):
    return lambda *args: tuple(each + 1 for each in gm.forward(*args))


def save_failing(model, *args, **kwargs) -> SavedCase:
    """Return the case of a call that raises."""
    saved = None
    try:
        model(*args, **kwargs)
    except Exception:
        saved = ctk.save_case(model, args, kwargs)
    assert saved is not None
    return saved


def assert_fails(saved: SavedCase, exception: str):
    case = load_case(saved, trust=True)
    assert case.signature is not None
    assert case.signature.exception == exception
    assert judge(case, expected=case.signature).fails
    assert saved.command == f"ctk diagnose {saved.folder} --trust"
    assert f"next: {saved.command}" in str(saved)
    return case


def test_a_function_that_raises_at_run_time():
    program = torch.compile(lambda x, scale: x * scale, backend=refuses_large)
    program(torch.ones(4), scale=2)
    saved = save_failing(program, torch.full((4,), 8.0), scale=2)
    case = assert_fails(saved, "ArithmeticError")
    assert torch.equal(case.inputs[0], torch.full((4,), 8.0))
    assert saved.folder.parent == Path.cwd() / "ctk_dumps"
    assert "it fails: runtime-error ArithmeticError" in saved.note


def test_a_module_that_does_not_compile_keeps_its_state():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    x, random = torch.randn(8, 4), torch.random.get_rng_state()
    case = assert_fails(
        save_failing(torch.compile(model, backend=does_not_compile), x), "NotImplementedError"
    )
    assert case.modes.backward
    assert torch.equal(torch.random.get_rng_state(), random)
    for name, each in model.state_dict().items():
        assert torch.equal(each, before[name]), name


def test_a_module_compiled_in_place():
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    model = Doubled(4, 4)
    model.compile(backend=does_not_compile)
    assert_fails(save_failing(model, torch.randn(2, 4)), "NotImplementedError")


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        (torch.no_grad, {"grad": False, "backward": False}),
        (lambda: torch.autocast("cpu", torch.bfloat16), {"grad": True, "backward": True}),
        (torch.inference_mode, {"inference": True}),
    ],
)
def test_modes_of_the_call(around, expected):
    model = torch.compile(torch.nn.Linear(4, 4), backend=does_not_compile)
    with around():
        saved = save_failing(model, torch.randn(2, 4))
    case = assert_fails(saved, "NotImplementedError")
    assert {name: getattr(case.modes, name) for name in expected} == expected
    assert bool(case.modes.autocast) == isinstance(around(), torch.autocast)


def test_the_graph_that_fails_of_several():
    @torch.compile(backend=refuses_large)
    def program(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    case = assert_fails(save_failing(program, torch.full((4,), 6.5)), "ArithmeticError")
    assert case.name == "graph1"


def test_without_an_exception_the_results_are_judged():
    program = torch.compile(torch.relu, backend=wrong_by_one)
    saved = ctk.save_case(program, torch.ones(3))
    case = load_case(saved, trust=True)
    assert case.signature is not None
    assert case.signature.kind == "accuracy"


def test_arguments_that_the_failed_call_has_changed():
    compiled = torch.compile(lambda x: x.sub_(4) * 2, backend=raises_after_writing)
    saved = save_failing(compiled, torch.full((4,), 8.0))
    assert "the call may have changed its arguments before it raised" in saved.note


def test_a_watched_program_has_the_arguments_before_the_call():
    with install(dump="dumps", ring=2):
        compiled = torch.compile(lambda x: x.sub_(4) * 2, backend=raises_after_writing)
        compiled(torch.ones(4))
        saved = save_failing(compiled, torch.full((4,), 8.0))
    assert saved.folder.name == "graph0_call2"
    case = assert_fails(saved, "ArithmeticError")
    assert torch.equal(case.inputs[0], torch.full((4,), 8.0))


def test_a_call_that_raises_in_eager_as_well():
    program = torch.compile(lambda x: x @ torch.ones(3, 3), backend="eager")
    with pytest.raises(ProgramError, match="fails in eager"):
        save_failing(program, torch.ones(4, 4))


def test_a_backend_without_a_name_is_refused():
    program = torch.compile(torch.relu, backend=lambda gm, inputs: does_not_compile(gm, inputs))
    with pytest.raises(TargetError, match="put it into a module"):
        save_failing(program, torch.ones(3))


def test_a_text_in_place_of_arguments_is_refused():
    with pytest.raises(ProgramError, match="pass a tuple"):
        ctk.save_case(torch.relu, "folder")
    with pytest.raises(ProgramError, match="not a value of type int"):
        ctk.save_case(3, (torch.ones(2),))  # type: ignore[arg-type]  # on purpose


def test_a_folder_of_its_own_and_an_occupied_one():
    program = torch.compile(torch.relu, backend=does_not_compile)
    with contextlib.suppress(Exception):
        program(torch.ones(3))
    saved = ctk.save_case(program, torch.ones(3), folder="mine")
    assert saved.folder == Path("mine")
    with pytest.raises(ctk.CtkError, match="exists already"):
        ctk.save_case(program, torch.ones(3), folder="mine")
