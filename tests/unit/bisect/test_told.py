"""Operators whose fake (meta) implementation tells what their kernel does not do."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.compile_log.meta_values import find_meta_mismatches
from ctk.toolkit.compile_log.operator_faults import find_operator_faults
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.operations.check import check_case
from ctk.toolkit.oracle.questions.judge import judge
from tests.helpers.torch_bugs import LOST_CHANNELS_LAST

WIDENED, TURNED = "operator/told::widened", "operator/told::turned"


@torch.library.custom_op("told::widened", mutates_args=())
def widened(x: Tensor) -> Tensor:
    return x * torch.ones((), dtype=torch.float64) if x.dim() == 0 else x.to(torch.float64) + 0.0


@widened.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("told::turned", mutates_args=())
def turned(x: Tensor) -> Tensor:
    return (x * 2.0).t().contiguous().t()


@turned.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def narrowed_again(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return widened(x.sin()).to(torch.float32), y.cos()


def turned_and_added(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return turned(x.sin()) + 1.0, turned(y).sum()


def copied_sign(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.copysign(x.mT, y).exp(), x.relu()


def normed(x: Tensor, y: Tensor) -> Tensor:
    images = x.view(1, 2, 5, 3).contiguous(memory_format=torch.channels_last)
    return F.group_norm(images, 2) * y.sum()


def wide(x: Tensor, y: Tensor) -> Tensor:
    return widened(x.sin()) + y


def case_of(program, target: str, *, backward: bool = False) -> Case:
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, generator=generator)
    y = torch.randn(5, 6, generator=generator) if program is copied_sign else x + 1.0
    inputs = (x.requires_grad_(backward), y)
    own = UserProgram(program, inputs, {}, program.__name__, Path(__file__))
    (case,) = capture_cases(own, target=target, backward=backward)
    return case


def log_of(case: Case, veto: Veto):
    recorder = Recorder(veto, keep_calls=True)
    judge(case, observer=recorder)
    return recorder.log


@pytest.mark.parametrize("target", ["aot_eager", "ctk"])
def test_a_type_that_was_told_wrongly_is_the_culprit(target: str):
    search = find_culprit(case_of(narrowed_again, target))
    assert search.culprit is not None
    assert (search.culprit.where, search.confirmed) == (WIDENED, True)
    assert search.culprit.captured == ("widened_default",)
    assert "expects torch.float32, the operator gives torch.float64" in search.culprit.evidence
    assert search.compiles == 2


@LOST_CHANNELS_LAST.is_needed
def test_a_stride_that_torch_tells_wrongly_is_the_culprit():
    search = find_culprit(case_of(normed, "ctk"))
    assert search.culprit is not None
    assert search.culprit.where == "dispatch/meta.aten.native_group_norm.default"
    assert search.confirmed


def test_a_check_shows_the_step_that_told_it():
    report = check_case(case_of(narrowed_again, "aot_eager"))
    first = report.wrong[0]
    assert (first.where, first.node) == (WIDENED, "widened_default")
    assert "the compiler expects torch.float32" in first.what


def test_a_node_behind_a_custom_operator_is_not_at_fault():
    case = case_of(turned_and_added, "aot_eager")
    assert [*find_meta_mismatches(case, log_of(case, Veto()))] == []
    (fault,) = find_operator_faults(case)
    assert (fault.where, fault.nodes) == (TURNED, ("turned_default", "turned_default_1"))
    assert fault.predicate.startswith("has a fake implementation with another stride")


@pytest.mark.parametrize("dynamic", [False, True])
def test_nothing_is_said_of_a_program_that_passes(dynamic: bool):
    torch._dynamo.reset()
    inputs = (torch.randn(6, 5), torch.randn(5, 6))
    own = UserProgram(copied_sign, inputs, {}, "copied_sign", Path(__file__))
    (case,) = capture_cases(own, target="aot_eager", dynamic=dynamic)
    assert check_case(case).wrong == (), "strides that nobody sees are no finding"
    assert [each.node for each in find_meta_mismatches(case, log_of(case, Veto()))] == ["copysign"]
    veto = Veto(passes=frozenset({"dispatch/meta.aten.copysign.Tensor"}))
    assert [*find_meta_mismatches(case, log_of(case, veto))] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "culprit", "backward"),
    [
        (copied_sign, "dispatch/meta.aten.copysign.Tensor", False),
        (copied_sign, "dispatch/meta.aten.copysign.Tensor", True),
        (turned_and_added, TURNED, False),
        (wide, WIDENED, False),
    ],
)
def test_inductor_that_was_told_wrongly_is_not_to_blame(program, culprit: str, backward: bool):
    search = find_culprit(case_of(program, "inductor", backward=backward))
    assert search.culprit is not None
    assert (search.culprit.where, search.confirmed) == (culprit, True)
    assert search.compiles == 2
