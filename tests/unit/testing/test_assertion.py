"""`ctk.assert_compiles`: an AssertionError with the verdict, the case and the command."""

from pathlib import Path

import pytest
import torch

import ctk
from ctk.compiler.errors import ProgramError, WrongCompile
from ctk.toolkit.case.store import load_case
from tests.helpers.cli import BROKEN_PASS, write


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) + 1


def test_a_right_compile_passes(tmp_path: Path):
    ctk.assert_compiles(relu, [torch.ones(3)], target="aot_eager", dump=tmp_path)
    ctk.assert_compiles(relu, {"x": torch.ones(3)}, target="aot_eager", dump=tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_wrong_compile_is_an_assertion_error_with_its_case(tmp_path: Path):
    config = {"custom_passes": {"joint": [f"{write(tmp_path, 'p.py', BROKEN_PASS)}:negate_relu"]}}
    with pytest.raises(AssertionError, match="next: ctk diagnose") as raised:
        ctk.assert_compiles(relu, [torch.ones(3)], target="ctk", config=config, dump=tmp_path / "d")
    error = raised.value
    assert isinstance(error, WrongCompile) and "joint/negate_relu" in str(error)
    assert error.folder is not None and error.command.endswith(f"{error.folder} --trust")
    case = load_case(error.folder, trust=True)
    assert case.signature is not None and case.signature.kind == "accuracy"


def test_a_program_that_fails_in_eager_has_no_verdict(tmp_path: Path):
    with pytest.raises(ProgramError):
        ctk.assert_compiles(lambda x: x.view(7), [torch.ones(3)], target="ctk", dump=tmp_path)
