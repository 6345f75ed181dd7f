"""The repro of a program that breaks a GPU in eager: the compiled program runs in a child.

On a machine without a GPU an operator raises the exception of a broken one; the way is the same.
"""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ctk.compiler.usercode.python_files import load_file
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.repro.run import write_repro

BACKENDS = """
import torch


@torch.library.custom_op("broken_device::loss", mutates_args=())
def loss(x: torch.Tensor) -> torch.Tensor:
    raise torch.AcceleratorError("CUDA error: device-side assert triggered")


@loss.register_fake
def loss_fake(x):
    return x.new_empty(())


def silent(gm, example_inputs):
    return lambda x: (x.sum(),)


def honest(gm, example_inputs):
    return gm
"""


def make_program() -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops.broken_device.loss.default, (x,)),))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize(
    ("backend", "code", "said"),
    [
        ("silent", 1, "FAILURE: missing-error AcceleratorError: CUDA error"),
        pytest.param("honest", 0, "NO FAILURE", marks=pytest.mark.slow),
    ],
)
def test_the_compiled_program_is_asked_in_a_child(
    backend: str, code: int, said: str, tmp_path: Path
) -> None:
    backends = tmp_path / "backends.py"
    backends.write_text(BACKENDS)
    load_file(backends)
    case = Case(make_program(), (torch.ones(3),), f"{backends}:{backend}", sources=(backends,))
    case = dataclasses.replace(case, signature=Signature("missing-error", "AcceleratorError"))
    folder = tmp_path / "repro"
    folder.mkdir()
    script = write_repro(case, folder)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[: len(said)]) == (code, said), done.stderr
