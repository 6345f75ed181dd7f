"""Joint passes on small graphs, for `test_passes.py`; and where they must not fire."""

import pytest
import torch

from ctk.compiler.passes.joint import (
    chunk_losses,
    pad_mm,
    replace_random,
    sample_by_gumbel_max,
    scatter_to_where,
    store_unique_indices,
)
from tests.helpers.passes import aten_graph, unchanged

X, Y, B = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
ORDER, PLACES = torch.randperm(4), torch.tensor([0, 0])
COLUMN = torch.tensor([[0], [3], [1], [1]])
ALWAYS = pad_mm.PadMm(enabled="always")
aten = torch.ops.aten


def shuffled(x, y, b):
    order = torch.randperm(4)
    rows = torch.index_add(x, 0, order[:2], y[:2])
    back = aten.index_put(torch.zeros(4, 4), [order], rows.exp(), True)
    return back, aten.scatter_add(b, 0, b.sort()[1], b)


def ragged(x, y, b):
    narrow, batch = x[:3, :2], y.view(2, 2, 4)[:, :, :3]
    product = torch.addmm(b[:2], narrow, y[:2, :2]).exp()
    return product, torch.mm(narrow.t(), y[:3, 1:]), torch.bmm(batch, y[:3].expand(2, 3, 4)).sin()


def draws(x):
    kept, mask = aten.native_dropout(x, 0.25, True)
    drawn = torch.rand_like(x.t()) + torch.randint(7, (4, 4)) + aten.normal_functional(x, 1.0, 2.0)
    return torch.randperm(4), kept * mask, torch.bernoulli(x.sigmoid()), drawn


def spread(x, i):
    chosen = torch.zeros(4, 4).scatter(1, i, 1.0)
    return x * chosen, torch.zeros(4, 4).scatter_add(0, i.t(), x[:1]).exp(), x.new_zeros(4, 4)


def sampled(x):
    noise = aten.exponential.default(torch.empty_like(x))
    return torch.argmax(torch.softmax(x, 1) / noise, -1)


def loss(x, w):
    scores = aten._softmax.default(aten.mm.default(x, w), 1, False)
    of_logits = aten._softmax_backward_data.default(scores.log(), scores, 1, torch.float32)
    return scores.log().mean(), of_logits @ w.t(), aten.t.default(of_logits) @ x


SEEDED = replace_random.ReplaceRandom(enabled=True)
SAMPLING = sample_by_gumbel_max.SampleByGumbelMax(enabled=True)
CHUNKS = chunk_losses.ChunkLosses(enabled=True, chunks=2, min_nbytes=0, min_ratio=0.5)
CASES = [
    (CHUNKS, "joint", lambda: aten_graph(loss, torch.randn(6, 2), torch.randn(2, 9))),
    (SEEDED, "joint", lambda: aten_graph(draws, X)),
    (ALWAYS, "joint", lambda: aten_graph(ragged, X, Y, B)),
    (SAMPLING, "joint", lambda: aten_graph(sampled, X)),
    (scatter_to_where.PASS, "joint", lambda: aten_graph(spread, X, COLUMN)),
    (store_unique_indices.PASS, "joint", lambda: aten_graph(shuffled, X, Y, B)),
]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.mm(x, x),  # sizes that fit
        lambda x: torch.mm(x[:3], x),  # rows that nobody reads as vectors
        lambda x: torch.mm(x[:1], x[:, :1]),  # vectors
        lambda x: torch.mm(x[:3, :0], x[:0, :3]),  # empty ones
        lambda x: torch.mm(x[:3, :3].long(), x[:3, :3].long()),
        lambda x: torch.mm(x[:3, :3] * 1j, x[:3, :3] * 1j),
    ],
)
def test_pad_mm_must_not_fire(function):
    assert unchanged(function, ALWAYS, X)


def test_pad_mm_pads_nothing_that_it_has_not_measured():
    assert unchanged(lambda x: torch.mm(x[:3, :3], x[:3, :3]), pad_mm.PASS, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda i: torch.zeros(4, 4).scatter(1, i, 1.0),  # nobody reads it
        lambda i: torch.zeros(4, 4).scatter(1, i, 1.0).sum(0),  # alone it is faster
        lambda i: torch.zeros(4, 4).scatter(0, i, 1.0) * 2,  # many indices along the dimension
        lambda i: torch.zeros(5, 4).scatter(1, i, 1.0) * 2,  # a row without an index
        lambda i: torch.ones(4, 4).scatter_add(1, i, torch.ones(4, 1)) * 2,  # 1 + 1 may round
        lambda i: torch.zeros(4, 4).scatter(1, i, torch.ones(4, 2)) * 2,  # values left out
        lambda i: torch.zeros(4, 4).scatter(1, i, -0.0) * 2,
        lambda i: torch.zeros(4, 4, dtype=torch.int8).scatter(1, i, 300) * 2,
        lambda i: torch.zeros(4, 4).scatter(1, i, 2.0, reduce="multiply") * 2,
        lambda i: (torch.zeros(4, 4) * 1j).scatter(1, i, 1.0) * 2,
        lambda i: torch.arange(16.0).view(4, 4).scatter(1, i, 1.0) * 2,
    ],
)
def test_scatter_to_where_must_not_fire(function):
    assert unchanged(function, scatter_to_where.PASS, COLUMN)


def written_order(x):
    order = torch.randperm(4)
    order.fill_(0)
    return torch.index_add(x, 0, order, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.index_add(x, 0, PLACES, x[:2]),  # two equal ones
        lambda x: torch.index_add(x, 0, torch.randint(4, (2,)), x[:2]),
        lambda x: torch.index_add(x, 0, torch.randperm(2).repeat(2), x),
        lambda x: torch.index_add(x, 0, torch.randperm(2)[:1].expand(2), x[:2]),
        lambda x: torch.index_add(x, 0, torch.randperm(4) % 2, x),
        lambda x: torch.index_add(x, 0, torch.randperm(4).to(torch.int32), x),
        lambda x: aten.index_put(x, [torch.randperm(5)[:1]], x[:1], True),  # 4 is out of bounds
        lambda x: aten.index_put(x, [torch.arange(-2, 2)], x, True),  # negative ones
        lambda x: aten.index_put(x, [ORDER, ORDER], x[0], True),
        lambda x: aten.index_put(x, [torch.randperm(4)], x, False),
        lambda x: torch.index_add(x, 0, torch.randperm(4), x, alpha=2),
        lambda x: torch.index_add(x.t(), 0, torch.randperm(4), x),  # whose result is dense
        lambda x: torch.index_add(x * 1j, 0, torch.randperm(4), x * 1j),
        lambda x: x.scatter_add(0, torch.randperm(4)[None].expand(2, 4), x),  # of two dimensions
        lambda x: x[torch.randperm(4)],
        written_order,
    ],
)
def test_store_unique_indices_must_not_fire(function):
    assert unchanged(function, store_unique_indices.PASS, X)
