"""Pads that repeat elements, and their gradients, are those of eager."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.lowering.fuse import fuse
from ctk.compiler.lowering.interpret import run_program
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.walk import loads
from tests.helpers.lowered import compare
from tests.unit.lowering.test_operators import rows


def padded(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        F.pad(x, (2, 1), "reflect"),
        F.pad(x, (3, 3, 0, 2), "reflect") * 2,
        F.pad(x, (0, 3, 2, 0), "replicate"),
        F.pad(y, (1, 2, 0, 1, 1, 0), "reflect"),
        F.pad(y, (1, 2, 3, 1, 0, 5), "replicate"),
    ]


@pytest.mark.parametrize("codegen", ["", "c"])
def test_pads_and_their_gradients(codegen: str) -> None:
    x, y = rows(2, 3, 4), rows(2, 2, 3, 4)
    lowered = compare(padded, x, y, codegen=codegen)
    assert all("replication" in name for name in lowered.operators)


def test_types_and_sizes_of_the_call() -> None:
    x, y = rows(2, 3, 4).detach().bfloat16(), rows(2, 2, 3, 4).detach().bfloat16()
    assert not compare(padded, x, y, codegen="c").library
    assert not compare(padded, x.float(), y.float(), dynamic=True).library


def test_on_a_gpu_one_index_reads_all_parts() -> None:
    x, y = rows(2, 3, 4).detach(), rows(2, 2, 3, 4).detach()
    with FakeTensorMode():
        fakes = [torch.empty(each.shape, device="cuda") for each in (x, y)]
        gm = make_fx(lambda x, y: padded(x * 3, y.exp()))(*fakes)
    program = fuse(lower(gm), lambda *_: True)
    assert all(len(loads(step)) <= 2 for step in program.steps if isinstance(step, Kernel))
    found = run_program(gm, program, (x, y), check=True)
    for mine, eager in zip(found, padded(x * 3, y.exp()), strict=True):
        torch.testing.assert_close(mine, eager)
