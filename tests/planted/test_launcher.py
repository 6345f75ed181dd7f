"""A fault planted into the launcher of kernels in C: named to the kernel that it launches."""

import functools
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor

from ctk.compiler.codegen.triton import variants
from ctk.compiler.codegen.triton.c_launcher_library import compile_launcher
from ctk.compiler.torch_compat.gpu.c_launcher import SOURCE, CLauncher
from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.usercode.program import UserProgram as UserProgram
from ctk.toolkit.importers.program import capture_cases

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FAULTS = {
    "the first operand is shifted": ("together |= values[i];", "together |= values[i] += 16 * !i;"),
}
"""A right and a wrong text of the launcher. Kernels with the fault stay in allocated memory,
fused or not."""


@functools.cache
def launcher_with(right: str, wrong: str) -> CLauncher:
    """Return a launcher with a fault; its kernels may outlive the test."""
    source = SOURCE.read_text()
    assert source.count(right) == 1
    library = compile_launcher(source.replace(right, wrong))
    return CLauncher(library.with_python(), library)


def spread(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y).cos() + (x - y * 3).relu()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_launcher_is_named_to_the_kernel(fault: str) -> None:
    inputs = torch.randn(300, 300, device="cuda"), torch.randn(300, 300, device="cuda")
    program = UserProgram(spread, inputs, {}, "spread", Path(__file__))
    (case,) = capture_cases(program, config={"codegen": "triton"})
    launcher = launcher_with(*FAULTS[fault])
    with mock.patch.object(variants, "c_launcher", lambda: launcher):
        search = find_culprit(case)
    assert search.culprit is not None
    assert search.culprit.where.startswith("lowered/triton:forward.")
    assert search.confirmed
    assert find_culprit(case).culprit is None
