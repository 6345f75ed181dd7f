"""Kernels that read memory which is not theirs: steady, named, apart from innocent ones."""

import dataclasses
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._inductor import ir, lowering

from ctk.compiler.lowering.arrays import moved
from ctk.compiler.lowering.operators import LOWERINGS
from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.bisect.memory_reads import OUTSIDE, UNWRITTEN, find_foreign_reads
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.repro.verified import write_verified_repro

aten = torch.ops.aten
X = torch.randn(1000, generator=torch.Generator().manual_seed(0))
TARGETS = ("ctk", "inductor")


def flipped(x: Tensor) -> Tensor:
    return x.flip(0) * 2


def of_intermediate(x: Tensor) -> Tensor:
    part = (x @ x.view(-1, 1)) + x.softmax(0)
    return part.flip(0) + part.sum()


def case_of(program, target: str, *inputs: Tensor) -> Case:
    user = UserProgram(program, inputs or (X.clone(),), {}, program.__name__, Path(__file__))
    config = {"codegen": "c"} if target == "ctk" else {}
    (case,) = capture_cases(user, config=config, target=target)
    return case


def shift_flip(target: str, by: int):
    """Let `flip` read so many elements beside the right one."""
    if target == "ctk":
        original = LOWERINGS[aten.flip.default]

        def wrong(b, x, dims):
            shifted = moved(x, x.shape, lambda at: [at[0] + by])
            return original(b, shifted, dims)

        return mock.patch.dict(LOWERINGS, {aten.flip.default: wrong})

    def shifted(x, dims):
        size, load = x.get_size(), x.make_loader()
        return ir.Pointwise.create(
            device=x.get_device(),
            dtype=x.get_dtype(),
            inner_fn=lambda at: load([size[0] - 1 - at[0] + by]),
            ranges=size,
        )

    return mock.patch.dict(lowering.lowerings, {torch.ops.prims.rev.default: shifted})


@pytest.mark.parametrize(("program", "by"), [(flipped, 1), (of_intermediate, -1)])
@pytest.mark.parametrize("target", TARGETS)
def test_a_read_outside_of_an_operand_is_steady_and_named(target: str, program, by: int):
    case = case_of(program, target)
    with shift_flip(target, by):
        assert all(judge(case).fails for _ in range(3))
        found = find_culprit(case)
        assert found.culprit is not None
        assert found.confirmed
        assert found.culprit.stage == "lowered"
        assert "flip" in found.culprit.captured
        assert found.culprit.evidence.startswith(OUTSIDE)
    assert judge(case).is_no_failure


def lost_writes():
    """Let Inductor's `flip` be a buffer that no kernel writes."""

    def unwritten(x, dims):
        made = lowering.clone(x)
        made.realize()
        buffer = made.data.data
        buffer.data = dataclasses.replace(buffer.data, ranges=[0])
        return made

    return mock.patch.dict(lowering.lowerings, {torch.ops.prims.rev.default: unwritten})


def test_a_buffer_that_is_never_written_is_told():
    case = case_of(flipped, "inductor")
    with lost_writes():
        assert all(judge(case).fails for _ in range(3))
        assert find_foreign_reads(case) == UNWRITTEN


def as_window(x: Tensor) -> Tensor:
    return x[10:].as_strided((20,), (1,), 0) * 2


def written(x: Tensor) -> Tensor:
    x.mul_(2)
    return x[1:] + x[:-1]


def reductions(x: Tensor) -> Tensor:
    return torch.cat([x[3:].softmax(0), x.cumsum(0)[:7]])


def fresh(x: Tensor) -> Tensor:
    return torch.empty_like(x).copy_(x) + x.new_empty(x.shape).fill_(2)


def grown(x: Tensor) -> Tensor:
    return x.resize_(900) + 1


@pytest.mark.parametrize("program", [as_window, written, reductions, fresh, grown])
@pytest.mark.parametrize("target", TARGETS)
def test_an_innocent_program_reads_its_own_memory(target: str, program):
    case = case_of(program, target)
    assert judge(case).is_no_failure
    assert find_foreign_reads(case) == ""


@pytest.mark.parametrize("first", [slice(None), slice(6), slice(1, 8)])
@pytest.mark.parametrize("target", [*TARGETS, "aot_eager"])
def test_inputs_that_share_memory_still_do(target: str, first: slice):
    def shared(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x[:4] + y

    base = torch.arange(8.0)
    views = base if first == slice(None) else base[first]
    assert judge(case_of(shared, target, views, base[4:])).is_no_failure


# Free memory may hold a NaN by chance, but not 16 of them.
BACKEND = """
import ctypes
import math
import torch

def reads_behind(gm, example_inputs):
    def run(x):
        behind = (ctypes.c_float * 16).from_address(x.data_ptr() + x.nbytes)
        return (gm(x)[0] + (math.nan if all(map(math.isnan, behind)) else 0.0),)

    return run
"""


@pytest.mark.clean_process
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_repro_of_a_read_that_is_right_by_chance_guards_its_memory(
    tmp_path: Path, is_stored: bool
):
    (tmp_path / "backends.py").write_text(BACKEND)
    gm = torch.fx.symbolic_trace(lambda x: (x * 2,))
    x = torch.linspace(-1, 1, 900) ** 3 if is_stored else X.clone()
    case = Case(gm, (x,), target=f"{tmp_path / 'backends.py'}:reads_behind")
    judgement = judge(case)
    assert judgement.fails
    case = dataclasses.replace(case, signature=judgement.signature)
    path, run = write_verified_repro(case, tmp_path)
    assert run.outcome == "reproduced", run
    assert "guards=guarded" in path.read_text()
    assert path.with_suffix(".safetensors").exists() == is_stored
