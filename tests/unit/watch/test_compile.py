"""What the program gets, and is told, when a watched compile or call fails."""

import gc
import logging
import weakref
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import MiscompileError
from ctk.toolkit.watch.hooks import debug_compile
from tests.helpers.faulty_backends import (
    breaks,
    draws_first,
    fails_later,
    fails_to_compile,
    fails_to_run,
    good,
    manifest,
    model,
    name_of,
    only_folder,
    wrong,
    wrong_backward,
)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    return lambda: [r.getMessage() for r in caplog.records if r.name.startswith("ctk")]


def test_a_compile_error_raises_and_says_what_to_do(tmp_path: Path, log):
    compiled = torch.compile(model, backend=debug_compile(fails_to_compile, dump=tmp_path))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as raised:
        compiled(torch.randn(3))
    cause = raised.value.inner_exception
    assert isinstance(cause, NotImplementedError)
    folder = only_folder(tmp_path)
    assert any(f"ctk diagnose {folder}" in note for note in cause.__notes__)
    (message,) = log()
    for part in (
        "ctk: graph0 fails with target",
        "compile-error NotImplementedError",
        f"ctk repro {folder}",
        f"ctk minify {folder}",
        f"ctk diagnose {folder}",
    ):
        assert part in message
    assert manifest(tmp_path)["signature"]["kind"] == "compile-error"


def test_a_compile_error_with_fallback_is_one_more_line(tmp_path: Path, log):
    backend = debug_compile(fails_to_compile, dump=tmp_path, on_failure="fallback")
    x = torch.randn(3)
    compiled = torch.compile(model, backend=backend)
    assert torch.equal(compiled(x), model(x))
    assert torch.equal(compiled(x), model(x))
    assert len(log()) == 2
    assert "graph0 runs in eager from now on" in log()[1]


def test_a_compile_error_with_warn(tmp_path: Path):
    backend = debug_compile(fails_to_compile, dump=tmp_path, on_failure="warn")
    x = torch.randn(3)
    with pytest.warns(RuntimeWarning, match="runs in eager from now on"):
        assert torch.equal(torch.compile(model, backend=backend)(x), model(x))


def test_a_runtime_error_raises(tmp_path: Path, log):
    compiled = torch.compile(model, backend=debug_compile(fails_to_run, dump=tmp_path))
    with pytest.raises(ArithmeticError) as raised:
        compiled(torch.randn(3))
    assert any("ctk diagnose" in note for note in raised.value.__notes__)
    assert len(log()) == 1
    assert manifest(tmp_path)["signature"]["kind"] == "runtime-error"


@pytest.mark.parametrize("check", ["off", "output"])
def test_a_runtime_error_with_fallback_puts_the_inputs_back(tmp_path: Path, check: str):
    options = {"dump": tmp_path, "on_failure": "fallback", "check": check}
    compiled = torch.compile(model, backend=debug_compile(fails_to_run, **options))
    x = torch.randn(3)
    before = x.clone()
    assert torch.equal(compiled(x), model(before))
    assert torch.equal(x, before)
    assert torch.equal(compiled(x), model(before))


def test_wrong_values_raise(tmp_path: Path, log):
    backend = debug_compile(wrong, dump=tmp_path, check="output")
    with pytest.raises(MiscompileError) as raised:
        torch.compile(model, backend=backend)(torch.randn(3))
    text = str(raised.value)
    assert "graph0 fails" in text and "accuracy at out0" in text and "max abs" in text
    assert f"ctk diagnose {only_folder(tmp_path)}" in text
    assert log() == [text]
    assert manifest(tmp_path)["signature"]["kind"] == "accuracy"
    assert not manifest(tmp_path)["modes"]["backward"]


def test_wrong_values_pass_unnoticed_without_a_check(tmp_path: Path, log):
    x = torch.randn(3)
    result = torch.compile(model, backend=debug_compile(wrong, dump=tmp_path))(x)
    assert torch.equal(result, model(x) * 1.5)
    assert log() == []


def test_wrong_values_with_fallback_give_eager(tmp_path: Path, log):
    backend = debug_compile(wrong, dump=tmp_path, check="output", on_failure="fallback")
    x = torch.randn(3)
    compiled = torch.compile(model, backend=backend)
    assert torch.equal(compiled(x), model(x)) and torch.equal(compiled(x), model(x))
    assert len(log()) == 2


def test_wrong_values_with_warn_give_the_compiled_results(tmp_path: Path):
    backend = debug_compile(wrong, dump=tmp_path, check="output", on_failure="warn")
    x = torch.randn(3)
    with pytest.warns(RuntimeWarning, match="the program gets the compiled results"):
        assert torch.equal(torch.compile(model, backend=backend)(x), model(x) * 1.5)


def test_a_wrong_gradient_is_found_in_the_forward_call(tmp_path: Path):
    backend = debug_compile(wrong_backward, dump=tmp_path, check="output")
    with pytest.raises(MiscompileError, match="at grad_in0"):
        torch.compile(model, backend=backend)(torch.randn(3, requires_grad=True))
    assert manifest(tmp_path)["modes"]["backward"]


def test_without_gradients_the_backward_is_not_asked(tmp_path: Path, log):
    backend = debug_compile(wrong_backward, dump=tmp_path, check="output")
    with torch.no_grad():
        torch.compile(model, backend=backend)(torch.randn(3, requires_grad=True))
    assert log() == []


def test_a_local_backend_works_and_says_that_commands_cannot_import_it(tmp_path: Path, log):
    def local(gm, example_inputs):
        return lambda *args: tuple(value * 1.5 for value in gm(*args))

    with pytest.raises(MiscompileError, match="no command can import the backend"):
        backend = debug_compile(local, dump=tmp_path, check="output")
        torch.compile(model, backend=backend)(torch.randn(3))


def nearly_tied(x):
    return ((x.softmax(-1).flip(-1) @ torch.ones(40, 6)) * 7).argmax(-1)


def partly_written(x):
    rows = torch.empty(4, 3)
    rows[:2] = x
    return rows


EXCUSED = {
    "ill-conditioned": (nearly_tied, torch.linspace(-1, 1, 80).reshape(2, 40)),
    "uninitialized": (partly_written, torch.ones(2, 3)),
}


@pytest.mark.parametrize("cause", EXCUSED)
def test_a_difference_of_a_local_backend_may_have_another_cause(cause: str, tmp_path: Path, log):
    program, x = EXCUSED[cause]

    def local(gm, example_inputs):
        def run(*args):
            (out,) = gm(*args)
            if cause == "uninitialized":
                return (torch.cat([out[:2], torch.where(out[2:] == 3.0, 4.0, 3.0)]),)
            return ((out + 1) % 6,)

        return run

    compiled = torch.compile(program, backend=debug_compile(local, dump=tmp_path, check="output"))
    compiled(x)
    said = log()
    assert not [text for text in said if "fails" in text], said
    # Unwritten memory may be equal by chance, or as far from the float64 run.
    causes = [text for text in said if f"no failure, but a difference: {cause}" in text]
    assert causes or cause == "uninitialized"


def test_a_wrong_value_of_a_local_backend_is_a_failure(tmp_path: Path):
    def local(gm, example_inputs):
        return lambda *args: (gm(*args)[0] + 1,)

    compiled = torch.compile(model, backend=debug_compile(local, dump=tmp_path, check="output"))
    with pytest.raises(MiscompileError):
        compiled(torch.randn(3))


def test_an_error_of_the_program_is_not_a_failure_of_the_compiler(tmp_path: Path, log):
    table = torch.randn(5, 3)

    def lookup(index):
        return torch.nn.functional.embedding(index, table)

    compiled = torch.compile(lookup, backend=debug_compile(good, dump=tmp_path))
    with pytest.raises(IndexError):
        compiled(torch.tensor([7]))
    assert log() == []
    assert manifest(tmp_path)["signature"] is None


def test_random_numbers_drawn_otherwise_are_no_failure(tmp_path: Path, log):
    backend = debug_compile(draws_first, dump=tmp_path, check="output")
    torch.compile(torch.nn.Dropout(0.5), backend=backend)(torch.ones(64))
    (message,) = log()
    assert "graph0" in message and "is not checked" in message
    assert manifest(tmp_path)["signature"] is None


def test_a_later_failure_is_announced_too(tmp_path: Path, log):
    backend = debug_compile(fails_later, dump=tmp_path, on_failure="fallback", check="output")
    compiled = torch.compile(model, backend=backend)
    x = torch.ones(3)
    compiled(x)
    with pytest.raises(ArithmeticError):
        compiled(x)
        compiled(x)
        compiled(x)
    assert any("runtime-error ArithmeticError" in message for message in log())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_backward_that_fails_outside_of_our_call(tmp_path: Path, log):
    config = {"custom_passes": {"backward": [breaks]}}
    backend = debug_compile("ctk", dump=tmp_path, config=config)
    result = torch.compile(model, backend=backend)(torch.randn(3, requires_grad=True))
    with pytest.raises(ZeroDivisionError):
        result.sum().backward()
    found = manifest(tmp_path)
    assert found["modes"]["backward"]
    assert found["config"] == {"custom_passes": {"backward": [name_of(breaks)]}}
    assert found["signature"]["exception"] == "ZeroDivisionError"
    (message,) = [message for message in log() if "fails with target" in message]
    assert "ctk diagnose" in message
    assert (only_folder(tmp_path) / "errors.txt").exists()


def test_the_programs_tensors_are_let_go_after_the_first_call(tmp_path: Path):
    compiled = torch.compile(model, backend=debug_compile(good, dump=tmp_path, check="pass"))
    x = torch.randn(3)
    gone = weakref.ref(x)
    compiled(x)
    del x
    gc.collect()
    assert gone() is None


# --- our own problems are not the program's ---


def test_a_dump_folder_that_cannot_be_made(tmp_path: Path, log):
    (tmp_path / "file").touch()
    x = torch.randn(3)
    compiled = torch.compile(model, backend=debug_compile(good, dump=tmp_path / "file" / "dump"))
    assert torch.equal(compiled(x), model(x))
    (message,) = log()
    assert "watching a graph" in message and "StorageError" in message
    assert "file is a file: name another folder, or remove it" in message


def test_a_case_that_cannot_be_saved(tmp_path: Path, log, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ctk.toolkit.watch.watched_case.save_case", refuse)
    x = torch.randn(3)
    compiled = torch.compile(model, backend=debug_compile("aot_eager", dump=tmp_path))
    assert torch.equal(compiled(x), model(x))
    (message,) = log()
    assert "saving" in message and "No space left on device" in message


def test_inputs_that_cannot_be_cloned(tmp_path: Path, log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ctk.toolkit.watch.state_copy.private_copy", lambda *_, **__: 1 / 0)
    x = torch.randn(3)
    backend = debug_compile(wrong, dump=tmp_path, check="output", on_failure="fallback")
    assert torch.equal(torch.compile(model, backend=backend)(x), model(x) * 1.5)
    (message,) = log()
    assert "cloning the inputs of graph0 (no check, no fallback) stopped" in message


def test_a_check_that_fails_itself(tmp_path: Path, log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ctk.toolkit.watch.first_call.run_eager", lambda case: 1 / 0)
    x = torch.randn(3)
    backend = debug_compile(good, dump=tmp_path, check="output")
    assert torch.equal(torch.compile(model, backend=backend)(x), model(x))
    (message,) = log()
    assert "is not checked: the check failed: ZeroDivisionError" in message
