"""Emitted repros: they show each kind of failure, and pass when the backend is repaired."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule

from ctk.repro_templates.graph.judging import OTHER_DRAWS
from ctk.toolkit.case.case import Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.repro.run import write_repro
from tests.helpers.cli import write
from tests.helpers.repros import (
    ACCURACY,
    BACKENDS,
    fails_and_heals,
    make_case,
    run_here,
    verdict_of,
)


def test_wrong_output(backends: Path, folder: Path) -> None:
    case = make_case(lambda x: (x.sin(),), torch.tensor([0.5, 2.0]), target=f"{backends}:wrong")
    text = fails_and_heals(case, folder, backends)
    assert 'TARGET = "sources/planted_backends.py:wrong"' in text
    copied = (folder / "sources/planted_backends.py").read_text()
    assert "def wrong(" in copied and "def honest(" in BACKENDS and "def honest(" not in copied


def test_cond_keeps_both_branches(backends: Path, folder: Path) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    case = make_case(program, torch.tensor([1.0, 2.0]), target=f"{backends}:wrong")
    text = fails_and_heals(case, folder, backends)
    assert "class Repro_cond_true_0(torch.nn.Module):" in text
    assert "class Repro_cond_false_0(torch.nn.Module):" in text


def test_nested_cond(backends: Path, folder: Path) -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 9, lambda x: x.tan(), lambda x: x.exp(), (x,))

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))

    case = make_case(program, torch.tensor([1.0, 2.0]), target=f"{backends}:wrong")
    text = fails_and_heals(case, folder, backends)
    assert "class Repro_cond_true_1_cond_true_0(torch.nn.Module):" in text


def test_wrong_gradient(backends: Path, folder: Path) -> None:
    case = make_case(
        lambda x: (x.sin(),), torch.tensor([0.5, 2.0]), target=f"{backends}:wrong_gradient"
    )
    inputs = (torch.tensor([0.5, 2.0], requires_grad=True),)
    case = dataclasses.replace(case, inputs=inputs, modes=Modes(backward=True))
    code, said = verdict_of(case, folder)
    assert code == 1
    assert said.startswith("FAILURE: accuracy at grad_in0: ")
    fails_and_heals(case, folder, backends)
    forward_only = dataclasses.replace(case, modes=Modes(backward=False))
    assert verdict_of(forward_only, folder)[0] == 0


def test_mutated_input(backends: Path, folder: Path) -> None:
    case = make_case(
        lambda x: (x.add_(1).sum(),), torch.tensor([0.5, 2.0]), target=f"{backends}:wrong_input"
    )
    code, said = verdict_of(case, folder)
    assert code == 1
    assert said.startswith("FAILURE: accuracy at in0: ")
    fails_and_heals(case, folder, backends)


PLANTED = "error ValueError: planted compile error"


@pytest.mark.parametrize(
    ("backend", "signature", "expected"),
    [
        ("raises", Signature("compile-error", "ValueError"), f"compile-{PLANTED}"),
        ("raises_when_called", Signature("runtime-error", "KeyError"),
         "runtime-error KeyError: 'planted runtime error'"),
        ("raises", ACCURACY, f"another failure: compile-{PLANTED}; expected accuracy"),
        ("raises", Signature("compile-error", "KeyError"),
         f"another failure: compile-{PLANTED}; expected compile-error KeyError"),
        ("wrong", Signature("dtype"),
         "another failure: accuracy at out0: 4 of 4 elements wrong"),
        ("other_dtype", Signature("dtype"),
         "dtype at out0: float64, eager gives float32"),
        ("other_strides", Signature("stride"), "stride at out0: (1, 2), eager gives (2, 1)"),
        ("makes_nan", Signature("nan"), "nan at out0: "),
        ("leaves", Signature("compile-error", "SystemExit"), "compile-error SystemExit: 0"),
        ("ends_the_process", Signature("exit"), "exit with status 0: the compiled program ended"),
    ],
)  # fmt: skip
def test_kinds_of_failure(
    backend: str, signature: Signature, expected: str, backends: Path, folder: Path
) -> None:
    case = make_case(
        lambda x: (x.sin(),), torch.tensor([[0.5, 2.0], [-1.0, 0.25]]),
        target=f"{backends}:{backend}", signature=signature,
    )  # fmt: skip
    code, said = verdict_of(case, folder)
    assert code == 1
    assert said.startswith(f"FAILURE: {expected}")


@pytest.mark.parametrize("target", ["ctk", "torchscript", "aot_eager", "eager"])
def test_named_targets_compile(target: str, folder: Path) -> None:
    case = make_case(lambda x: (x.sin().relu(),), torch.tensor([0.5, -2.0]), target=target)
    case = dataclasses.replace(case, inputs=(torch.ones(2, requires_grad=True),))
    case = dataclasses.replace(case, modes=Modes(backward=True))
    assert verdict_of(case, folder) == (0, "NO FAILURE: the compiled program agrees with eager\n")


def test_strides_are_a_failure_where_they_are_asked_for(backends: Path, folder: Path) -> None:
    case = make_case(lambda x: (x.sin(),), torch.ones(2, 2), target=f"{backends}:other_strides")
    assert verdict_of(case, folder)[0] == 0  # another failure is looked for
    case = dataclasses.replace(case, signature=None)
    assert verdict_of(case, folder)[0] == 0
    strict = dataclasses.replace(case, modes=Modes(strides=True))
    assert verdict_of(strict, folder)[0] == 1


def test_random_program_with_equal_draws(backends: Path, folder: Path) -> None:
    case = make_case(lambda x: (x + torch.rand(2),), torch.ones(2), target=f"{backends}:wrong")
    fails_and_heals(case, folder, backends)


def test_other_random_numbers_are_no_failure(backends: Path, folder: Path) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + torch.rand(2), x * 2

    case = make_case(program, torch.ones(2), target=f"{backends}:other_draws")
    code, said = verdict_of(case, folder)
    assert code == 125
    assert said == f"CANNOT TELL: flaky: {OTHER_DRAWS}\n"


def test_an_error_that_only_eager_raises(backends: Path, folder: Path) -> None:
    def program(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.index_select(0, index) + 1,)

    case = make_case(program, torch.ones(2), torch.tensor([1]), target=f"{backends}:raises_nothing")
    case = dataclasses.replace(case, inputs=(case.inputs[0], torch.tensor([5])))
    case = dataclasses.replace(case, signature=judge(case).signature)
    other = folder.with_name("other")
    other.mkdir()
    code, said = verdict_of(case, folder)
    assert (code, said) == (
        1,
        "FAILURE: missing-error IndexError: index out of range in self; only eager raises it\n",
    )
    crashing = dataclasses.replace(case, target=f"{backends}:crashes", signature=None)
    crashing = dataclasses.replace(crashing, signature=judge(crashing).signature)
    code, said = verdict_of(crashing, other)
    assert said.startswith("FAILURE: other-error ArithmeticError: kernel crashed; eager raises")
    assert code == 1
    healthy = dataclasses.replace(case, target="eager")
    assert verdict_of(healthy, folder)[0] == 0


def test_what_a_script_cannot_tell(backends: Path, folder: Path, tmp_path: Path) -> None:
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target=f"{backends}:wrong")
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.mm, (x, x)),))
    raising = dataclasses.replace(case, graph=GraphModule(torch.nn.Module(), graph))
    code, said = verdict_of(raising, folder)
    assert code == 125 and "must be a matrix" in said  # nothing was compared
    missing = dataclasses.replace(case, target="no_such_module_of_ctk:backend")
    code, said = verdict_of(missing, folder)
    assert code == 125
    assert "no_such_module_of_ctk:backend cannot be loaded" in said
    unknown = dataclasses.replace(case, target="no_such_backend")
    code, said = verdict_of(unknown, folder)
    assert code == 125
    assert "Dynamo knows no backend no_such_backend" in said
    passes = write(tmp_path, "passes.py", "def nothing(gm):\n    return None\n")
    config = {"custom_passes": {"joint": [f"{passes}:nothing"]}}
    script = write_repro(dataclasses.replace(case, target="ctk", config=config), folder)
    assert run_here(script)[0] == 0
    (folder / "sources/passes.py").unlink()
    code, said = run_here(script)
    assert code == 125 and "something is missing here: ConfigError" in said
