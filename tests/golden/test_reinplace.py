"""Where functional updates must stay functional, and that what is written in place is the same."""

import pytest
import torch

from ctk.compiler.options.config import Config
from ctk.compiler.passes.post_grad import reinplace
from tests.helpers.passes import aten_graph, rules_of, run_pass, text_of
from tests.unit.passes.test_pre_grad import compiled_with_log, count

aten = torch.ops.aten
X, V, ROWS = torch.randn(4, 3), torch.randn(2, 3), torch.tensor([0, 2])


def updated(x, v):
    return aten.index_put(x, [ROWS], v)


def leaves(x, v):
    z = x.sin()
    return updated(z, v), z


def view_read_later(x, v):
    z = x.sin()
    row, y = z[0], updated(z, v)
    return row + y


def view_leaves(x, v):
    z = x.sin()
    return updated(z, v) * 2, z[0]


def two_of_one(x, v):
    z = x.sin()
    return updated(z, v) + updated(z, v * 2)


def new_value_leaves(x, v):
    y = updated(x, v)
    x.copy_(y)
    return y


def read_before_it_is_copied(x, v):
    y = updated(x, v)
    z = x.sin()
    x.copy_(y)
    return z


def copied_twice(x, v):
    x.copy_(updated(x, v))
    x.copy_(x * 2)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, v: updated(x, v) * 2,  # the caller's
        lambda x, v: updated(x.expand(2, 4, 3)[0].view(4, 3), v) * 2,  # and views of it
        lambda x, v: updated((y := x.sin()), y[1:3]),  # an operand overlaps
        lambda x, v: aten.slice_scatter((y := x.sin()), y[:2], 0, 2, 4),
        lambda x, v: updated(x.sin().view(6, 2)[:4], v[:, :2]),  # more than it leaves the graph
        lambda x, v: aten.masked_fill(x.sin()[:, :1], x > 0, 2.0),  # broadcasts
        lambda x, v: updated(aten.conj_physical(x), v),  # returns its operand
        lambda x, v: updated(x[0].sin().expand(4, 3), v),  # rows share memory
        leaves,
        view_read_later,
        view_leaves,
        new_value_leaves,
        read_before_it_is_copied,
        copied_twice,
    ],
)
def test_reinplace_must_not_fire(program):
    gm = aten_graph(program, X.clone(), V)
    before = text_of(gm)
    record = run_pass(gm, reinplace.PASS, stage="forward", config=Config(codegen="eager"))
    assert (rules_of(record), text_of(gm)) == ([], before)


def test_reinplace_takes_one_of_two_that_read_one_tensor():
    gm = aten_graph(two_of_one, X, V)
    expected = gm(X, V)
    record = run_pass(gm, reinplace.PASS, stage="forward", config=Config(codegen="eager"))
    assert len(rules_of(record)) == 1
    torch.testing.assert_close(gm(X, V), expected, rtol=0, atol=0)


def test_reinplace_leaves_what_torchscript_would_refuse():
    gm = aten_graph(two_of_one, X, V)
    assert rules_of(run_pass(gm, reinplace.PASS, stage="forward")) == []


def cache(x, v):
    x[ROWS] = v
    z = torch.zeros(4, 3)
    z[1:3] = v.sin()
    z[:, 1] = x[:, 0]
    return z, x.sum()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_cache_is_written_in_place(dynamic):
    compiled, log = compiled_with_log(cache, dynamic=dynamic)
    mine, others = X.clone(), X.clone()
    torch.testing.assert_close(compiled(mine, V), cache(others, V), rtol=0, atol=0)
    torch.testing.assert_close(mine, others, rtol=0, atol=0)
    assert count(log, "reinplace") == 3


def test_gradients_of_a_gather_are_written_in_place():
    compiled, log = compiled_with_log(lambda x: x[ROWS].sin())
    mine, others = (X.clone().requires_grad_() for _ in range(2))
    compiled(mine).sum().backward()
    others[ROWS].sin().sum().backward()
    torch.testing.assert_close(mine.grad, others.grad, rtol=0, atol=0)
    assert count(log, "reinplace") == 1
