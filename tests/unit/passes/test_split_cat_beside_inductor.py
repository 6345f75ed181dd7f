"""Programs on which a pass of Inductor for splits and concatenations fires: ours fires too."""

import pytest
import torch
from torch._dynamo.utils import counters

from tests.helpers.split_cat_programs import (
    PROGRAMS,
    getitem_cat,
    inputs,
    split_cat_other,
    split_stack,
    unbind_stack,
)
from tests.unit.passes.test_pre_grad import compiled_with_log, count

FEW = {"threshold_to_cat": 2}


IDS = [function.__name__ for function, _ in PROGRAMS]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "name"), PROGRAMS, ids=IDS)
def test_inductor_fires(function, name):
    stage = "post_grad" if "aten" in name else "pre_grad"
    first = "normalization_aten_pass" if "aten" in name else "normalization_pass"
    options = {f"{stage}_fusion_options": {first: {}, name: FEW}, "fx_graph_cache": False}
    torch._dynamo.reset()
    counters.clear()
    uncached = torch._functorch.config.patch(enable_autograd_cache=False)
    with torch._inductor.config.patch(options), uncached:
        torch.compile(function)(*inputs())
    fired = "unbind_stack_pass" if name == "split_cat_pass" else name
    assert counters["inductor"][fired], dict(counters["inductor"])


@pytest.mark.parametrize(("function", "name"), PROGRAMS, ids=IDS)
def test_ours_fires_with_the_bits_of_eager(function, name):
    assert_fires(function, inputs(torch.complex64))


@pytest.mark.parametrize("function", [split_cat_other, split_stack, unbind_stack, getitem_cat])
def test_ours_fires_for_a_symbolic_batch(function):
    x, y = inputs()
    for each in (x, y):
        torch._dynamo.mark_dynamic(each, 0)
    assert_fires(function, (x, y))


def test_parts_of_symbolic_sizes_are_pieces():
    def program(x):
        halves = x.chunk(2, 0)
        begin, end = x.split([x.shape[0] - 3, 3], 0)
        return torch.cat([halves[0], halves[1]], 0), begin.sin(), end.cos()

    given = (torch.randn(10, 4),)
    compiled, _ = compiled_with_log(program, dynamic=True)
    torch.testing.assert_close(compiled(*given), program(*given))


def assert_fires(function, given):
    compiled, log = compiled_with_log(function, dynamic=None)
    torch.testing.assert_close(compiled(*given), function(*given), rtol=0, atol=0)
    assert count(log, "simplify_split_cat")


def test_gradients_flow_through_joined_pieces():
    def program(x, y):
        a, b, c = x.split(2, 1)
        p, q = torch.tanh(torch.stack([torch.cat([a, b], 1), torch.cat([y, c], 1)])).unbind(0)
        return (p * q).sum()

    compiled, log = compiled_with_log(program)
    mine, others = ([each.requires_grad_() for each in inputs()] for _ in range(2))
    compiled(*mine).backward()
    program(*others).backward()
    for x, y in zip(mine, others, strict=True):
        torch.testing.assert_close(x.grad, y.grad)
    assert count(log, "simplify_split_cat") > 2
