"""Random programs that write in place, into inputs, their views and each other, as kernels in C."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.helpers.lowered import compare

GENERATOR = torch.Generator().manual_seed(0)
ROWS, COLUMNS, TENSORS = 4, 3, 3

VIEWS = (
    lambda x: x,
    lambda x: x[:2],
    lambda x: x[2:],
    lambda x: x.flip(0),
    lambda x: x[::2].repeat_interleave(2, 0),
    lambda x: x.sum(0, keepdim=True).expand(ROWS, COLUMNS),
    lambda x: x.roll(1, 0),
)
WRITES = (
    lambda x, y: x.copy_(y),
    lambda x, y: x.add_(y),
    lambda x, y: x.mul_(0.5).sub_(y),
    lambda x, y: x.clamp_(-2).add_(y, alpha=0.25),
)
NUMBERS = st.integers(0, 11)
STEPS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=7)


def run(steps: list[tuple[int, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """Write each step's source into its target; return what is read in between."""
    found: list[Tensor] = []
    for to, source, where, look, how in steps:
        target = VIEWS[where % 3](tensors[to % TENSORS])
        value = VIEWS[look % len(VIEWS)](tensors[source % TENSORS])
        if value.shape != target.shape:
            target = tensors[to % TENSORS]
        if value.shape != target.shape:
            value = value.repeat(2, 1)
        if how >= 8:
            found.append(value * 2)
        WRITES[how % len(WRITES)](target, value.clone() if how % 2 else value + 1)
    return tuple(found)


@pytest.mark.parametrize("count", [6, pytest.param(300, marks=pytest.mark.slow)])
def test_what_is_written_is_read_as_in_eager(count: int) -> None:
    @settings(max_examples=count, deadline=None, database=None, derandomize=True)
    @given(STEPS)
    def check(steps: list[tuple[int, ...]]) -> None:
        torch.compiler.reset()
        inputs = [torch.randn(ROWS, COLUMNS, generator=GENERATOR) for _ in range(TENSORS)]
        compare(lambda *given: run(steps, *given), *inputs, codegen="c")

    check()
