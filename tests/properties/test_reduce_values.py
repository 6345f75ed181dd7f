"""Unusual values and random answers through the whole reducer: no step raises."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from tests.helpers.reduce_graphs import FAILURE
from tests.helpers.reduce_steps import traced

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # prototypes of torch

FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1e-40, -3e5, 1.0, 0.37)
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.int8, torch.int64, torch.uint8, torch.uint64, torch.bool,
    torch.complex64, torch.complex128,
)  # fmt: skip
SHAPES = ((), (0,), (1,), (3,), (2, 3), (2, 0, 2))


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Draw a small tensor of any dtype, whose numbers are at the edges."""
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SHAPES))
    count = math.prod(shape)
    if dtype.is_complex:
        parts = [complex(draw(st.sampled_from(FLOATS)), draw(st.sampled_from(FLOATS)))] * count
        value = torch.tensor(parts, dtype=torch.complex128).to(dtype)
    elif dtype.is_floating_point:
        numbers = st.lists(st.sampled_from(FLOATS), min_size=count, max_size=count)
        value = torch.tensor(draw(numbers), dtype=torch.float64).to(dtype)
    elif dtype == torch.bool:
        value = torch.tensor([draw(st.booleans())] * count, dtype=dtype)
    else:
        info = torch.iinfo(dtype)
        edges = st.sampled_from((info.min, info.max, 0, 1, info.max // 2))
        numbers = st.lists(edges, min_size=count, max_size=count)
        value = torch.tensor(draw(numbers), dtype=dtype)
    value = value.reshape(shape)
    return value.t() if len(shape) == 2 and draw(st.booleans()) else value


def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    moved = torch.clone(x.unsqueeze(0))
    return moved.squeeze(0), torch.cat([y.reshape(-1), y.reshape(-1)])


class RandomOracle:
    """Draws each new answer, and remembers those that reproduce."""

    def __init__(self, case: Case, data: st.DataObject) -> None:
        self.data, self.kept = data, {fingerprint(case)}
        self.seen: dict[str, Verdict] = {fingerprint(case): Verdict.REPRODUCES}

    def __call__(self, case: Case) -> Judgement:
        key = fingerprint(case)
        if key not in self.seen:
            self.seen[key] = self.data.draw(st.sampled_from(Verdict), "verdict")
        verdict = self.seen[key]
        return Judgement(verdict, FAILURE if verdict is Verdict.REPRODUCES else None)


@settings(deadline=None, max_examples=12, derandomize=True)
@given(tensors(), tensors(), st.data())
def test_no_step_raises_and_the_result_has_reproduced(x: Tensor, y: Tensor, data: st.DataObject):
    case = traced(program, x, y)
    oracle = RandomOracle(case, data)
    problem = Problem(case, oracle)
    result = minimize(problem)
    assert problem.left_out == {}
    assert problem.errors == []
    assert oracle.seen[fingerprint(result.best)] is Verdict.REPRODUCES
