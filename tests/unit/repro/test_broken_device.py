"""The repro of a program that breaks a GPU in eager: the compiled program runs in a child.

On a machine without a GPU another exception stands for the broken one; the way is the same.
"""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.repro.run import write_repro

BACKENDS = """
def silent(gm, example_inputs):
    return lambda x, target: (x.sum(),)


def honest(gm, example_inputs):
    return gm
"""


def program(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor]:
    return (torch.nn.functional.binary_cross_entropy(x, target),)


@pytest.mark.parametrize(
    ("backend", "code", "said"),
    [
        ("silent", 1, "FAILURE: another failure: missing-error RuntimeError: all elements"),
        pytest.param("honest", 0, "NO FAILURE", marks=pytest.mark.slow),
    ],
)
def test_the_compiled_program_is_asked_in_a_child(
    backend: str, code: int, said: str, tmp_path: Path
) -> None:
    backends = tmp_path / "backends.py"
    backends.write_text(BACKENDS)
    inputs = torch.full((3,), -3.0), torch.ones(3)
    case = Case(symbolic_trace(program), inputs, f"{backends}:{backend}", sources=(backends,))
    case = dataclasses.replace(case, signature=Signature("missing-error", "AcceleratorError"))
    folder = tmp_path / "repro"
    folder.mkdir()
    script = write_repro(case, folder)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[: len(said)]) == (code, said), done.stderr
