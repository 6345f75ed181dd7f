"""Values of a step that are rounding alone: a sum that cancels has no order of its own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import Checker
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.compile_log.steps import CompileStep
from tests.helpers.reduce_steps import traced

HALF = 1000 * torch.randn(4096, generator=torch.Generator().manual_seed(5))
CANCELS = torch.cat((HALF, -HALF))
ORDER = torch.randperm(8192, generator=torch.Generator().manual_seed(6))


def multiplied(x: Tensor) -> Tensor:
    return torch.matmul(x, torch.ones_like(x))


def dotted(x: Tensor) -> Tensor:
    return torch.dot(x, torch.ones_like(x))


def scaled(x: Tensor) -> Tensor:
    return torch.matmul(x, torch.full_like(x, 2.0))


def status(program: Callable[[Tensor], Tensor], values: Tensor) -> str:
    """Return the finding on a kernel that returned these values for CANCELS."""
    case: Case = traced(program, CANCELS)
    (*_, node, _) = case.graph.graph.nodes
    step = CompileStep(
        "kernel", "forward", "lowered/inductor:forward.k", case.graph, None, "reassociates",
        inputs=(CANCELS,), values={node.name: values},
    )  # fmt: skip
    return Checker(case, CompileLog()).check(step).status


@pytest.mark.parametrize("program", [multiplied, dotted, scaled])
def test_another_order_of_a_sum_that_cancels_is_as_good(program: Callable[[Tensor], Tensor]):
    other = program(CANCELS[ORDER])
    assert not torch.equal(other, program(CANCELS)), "else nothing is compared"
    assert status(program, other) == "ok"


@pytest.mark.parametrize("program", [multiplied, dotted, scaled])
def test_a_lost_term_is_wrong(program: Callable[[Tensor], Tensor]):
    short = CANCELS.clone()
    short[int(CANCELS.argmax())] = 0
    assert status(program, program(short)) == "wrong"
