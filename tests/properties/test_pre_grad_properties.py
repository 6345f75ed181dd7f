"""Drawn programs before autograd: every way to write a call, writes in place, views, aliases."""

import random
from collections.abc import Callable

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import Tensor, fx

from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import Numerics
from ctk.compiler.passes import PASSES
from ctk.repro_templates.numbers.tolerance import TABLE, tolerance_for
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from tests.golden.torch_cases import BATCH, NORMALIZE
from tests.helpers.passes import rules_of, run_pass, text_of, torch_graph

SETTINGS = settings(derandomize=True, deadline=None, max_examples=100)
TAPS, STATISTIC = torch.tensor([[[0.5, -1.0, 2.0]]]), torch.full((1,), 0.5)
WEIGHT, BIAS = (torch.arange(16.0) / 8 - 1).view(4, 4), torch.arange(4.0)

Step = Callable[[Tensor, Tensor], object]
STEPS: dict[str, Step] = {
    "relu method": lambda x, y: x.relu(),
    "relu function": lambda x, y: F.relu(input=x, inplace=False),
    "relu in place": lambda x, y: F.relu(x, True),
    "operators": lambda x, y: (2 * x + y) / 3.0 - y,
    "alpha": lambda x, y: torch.add(x, y, alpha=2),
    "transpose": lambda x, y: x.transpose(dim0=0, dim1=-1),
    "permute": lambda x, y: x.permute(1, 0),
    "permute dims": lambda x, y: torch.permute(x, dims=(1, 0)),
    "t": lambda x, y: torch.t(x),
    "reshape": lambda x, y: x.reshape(-1).reshape((4, 4)),
    "contiguous": lambda x, y: x.contiguous(),
    "dense": lambda x, y: x.t().contiguous(),
    "same type": lambda x, y: x.to(torch.float32).float().to("cpu").type_as(y),
    "other type": lambda x, y: x.double().to(dtype=torch.float32),
    "clone": lambda x, y: x.clone(),
    "detach": lambda x, y: x.detach(),
    "product": lambda x, y: x.tanh() @ y.tanh(),
    "product of dense": lambda x, y: x.tanh().t().contiguous() @ y.tanh().t().contiguous(),
    "linear": lambda x, y: F.linear(x.tanh(), WEIGHT, bias=BIAS),
    "linear of dense": lambda x, y: F.linear(x.tanh().t().contiguous(), WEIGHT),
    "dense of linear": lambda x, y: F.linear(x.tanh(), WEIGHT, BIAS).t().contiguous(),
    "dense of linear, by its rows": lambda x, y: (
        F.linear((x + y).tanh(), WEIGHT).permute(1, 0).contiguous()
    ),
    "batched": lambda x, y: (
        x[None].tanh().transpose(-2, -1).contiguous() @ y[None].tanh().permute(0, 2, 1).contiguous()
    )[0],
    "softmax": lambda x, y: x.softmax(-1),
    "sums": lambda x, y: x.sum(0, True) + x.mean(dim=1, keepdim=True),
    "parallel": lambda x, y: (
        F.linear(x.tanh(), WEIGHT, BIAS) * F.linear(y.sin(), WEIGHT, bias=BIAS)
    ),
    "parallel, returned": lambda x, y: torch.mm(x.tanh(), WEIGHT).add_(y.tanh() @ WEIGHT),
    "split": lambda x, y: torch.cat([torch.chunk(x, 2, dim=1)[1], x.chunk(2, -1)[0]], dim=1),
    "split twice": lambda x, y: torch.cat([x.split(2)[0].split(1)[1], x.split([1, 3])[1]]),
    "unbind": lambda x, y: torch.stack(x.unbind(0)),
    "stack": lambda x, y: torch.stack([x.unbind(1)[i] for i in range(4)], dim=1).neg(),
    "joined": lambda x, y: torch.cat([(p := x.sin().split(2))[0], p[1]], 0).cos(),
    "stacked": lambda x, y: torch.stack([*(x.sin().unbind(1)[i] for i in range(4))], -1) * y,
    "parts": lambda x, y: torch.cat([x.tanh(), y], dim=1).chunk(2, -1)[1].neg(),
    "nested": lambda x, y: torch.cat([torch.cat([x, y.sin()]), torch.cat([x])])[2:6],
    "parts of parts": lambda x, y: x + (q := x.split([1, 3])[1].split([1, 2]))[0] * q[1][:1],
    "squeezed": lambda x, y: (q := x.chunk(4, dim=0))[0].squeeze(0) + torch.squeeze(q[-1], 0) * y,
    "norm": lambda x, y: F.batch_norm(
        F.conv1d(x[:, None], TAPS, padding=1), STATISTIC, STATISTIC, eps=0.5
    )[:, 0],
    "write": lambda x, y: x.add_(y),
    "write a view": lambda x, y: x + x[0].fill_(1.5),
    "turn in place": lambda x, y: x.t_(),
    "copy": lambda x, y: x.copy_(y * 2),
}
drawn = st.lists(
    st.tuples(st.sampled_from(list(STEPS)), st.integers(0, 3), st.integers(0, 3)),
    min_size=1,
    max_size=8,
)
PRE_GRAD = {step.name: step for step in (*PASSES["pre_grad"], NORMALIZE, BATCH)}


def inputs() -> tuple[Tensor, Tensor]:
    values = torch.tensor([-1.5, -1.0, -0.0, 0.0, 0.5, 1.0, float("nan"), 2.0])
    generator = torch.Generator().manual_seed(0)
    x, y = (values[torch.randint(8, (4, 4), generator=generator)] for _ in range(2))
    return x, y.t()


def traced(steps: list[tuple[str, int, int]]) -> fx.GraphModule:
    """Return the graph of a program: each step takes two of the last values."""

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        pool = [x, y]
        for name, first, second in steps:
            result = STEPS[name](pool[-1 - first % len(pool)], pool[-1 - second % len(pool)])
            pool += [] if result is None else [result]
        return tuple(pool[-2:])

    given = inputs()
    return torch_graph(program, *given)


def ran(gm: fx.GraphModule) -> tuple[list[Tensor], list[tuple[int, int]]]:
    """Return outputs and inputs after a run, and which of them share memory."""
    given = clone_inputs(inputs())
    values = [*gm(*given), *given]
    places = [value.untyped_storage().data_ptr() for value in values]
    pairs = [(i, j) for i in range(4) for j in range(i) if places[i] == places[j]]
    return values, pairs


def assert_same(before: fx.GraphModule, after: fx.GraphModule, numerics: Numerics) -> None:
    (olds, old_pairs), (news, new_pairs) = ran(before), ran(after)
    assert new_pairs == old_pairs
    for old, new in zip(olds, news, strict=True):
        assert (new.dtype, new.shape, new.stride()) == (old.dtype, old.shape, old.stride())
        row = tolerance_for(old.dtype, TABLE[numerics])
        rtol, atol = (0.0, 0.0) if numerics == "exact" else (row.rtol, row.atol)
        torch.testing.assert_close(new, old, equal_nan=True, rtol=rtol, atol=atol)


def is_program(gm: fx.GraphModule) -> bool:
    try:
        ran(gm)
    except RuntimeError:  # writes to overlapping memory, and views that do not exist
        return False
    return True


@pytest.mark.slow
@given(steps=drawn, choice=st.integers(0, 20))
@settings(SETTINGS)
def test_a_pass_keeps_values_strides_and_sharing(steps: list[tuple[str, int, int]], choice: int):
    gm = traced(steps)
    hypothesis.assume(is_program(gm))
    for name, step in PRE_GRAD.items():
        note(name)
        after = copy_graph_module(gm)
        record = run_pass(after, step, stage="pre_grad")
        if not record.changed:
            assert text_of(after) == text_of(gm)
            continue
        assert_same(gm, after, step.numerics)
        assert rules_of(run_pass(after, step, stage="pre_grad")) == []
        partly = copy_graph_module(gm)
        left_out = frozenset({choice % len(record.rewrites) + 1})
        run_pass(partly, step, stage="pre_grad", observer=Recorder(Veto(rewrites=left_out)))
        assert_same(gm, partly, step.numerics)


@pytest.mark.slow
@given(steps=drawn)
@settings(SETTINGS)
def test_all_passes_in_order(steps: list[tuple[str, int, int]]):
    gm = traced(steps)
    hypothesis.assume(is_program(gm))
    after = copy_graph_module(gm)
    for step in PRE_GRAD.values():
        run_pass(after, step, stage="pre_grad")
    assert_same(gm, after, "reassociates")


@pytest.mark.parametrize("name", [name for name in PRE_GRAD if "dropout" not in name])
def test_the_programs_make_each_pass_work(name: str):
    def works(steps: list[tuple[str, int, int]]) -> bool:
        gm = traced(steps)
        return is_program(gm) and bool(run_pass(gm, PRE_GRAD[name], stage="pre_grad").rewrites)

    hypothesis.find(
        drawn,
        works,
        settings=settings(SETTINGS, phases=[hypothesis.Phase.generate], max_examples=300),
        random=random.Random(0),
    )
