"""Graphs of torch-level calls and of writes that passes change, for the golden tests."""

import torch
from torch import nn

from ctk.compiler.passes.post_grad import (
    bucket_gathers,
    bucket_reductions,
    order_for_locality,
    overlap_collectives,
    reinplace,
    reinplace_operators,
    reuse_reductions,
    simplify_slices,
)
from ctk.compiler.passes.post_grad.collectives import gather, reduce
from ctk.compiler.passes.pre_grad import (
    batch_linears,
    fold_conv_batch_norm,
    fuse_permute,
    normalize_calls,
    remove_identity,
    simplify_torch_split_cat,
)
from tests.helpers.passes import aten_graph, torch_graph

aten = torch.ops.aten
X, B, SCALE = torch.randn(4, 4), torch.randn(4), torch.rand(4) + 1
BATCH = batch_linears.BatchLinears(enabled=True)
GATHERS = bucket_gathers.BucketGathers(enabled=True)
REDUCTIONS = bucket_reductions.BucketReductions(enabled="always")
OVERLAP = overlap_collectives.OverlapCollectives(enabled=True)
NORMALIZE = normalize_calls.NormalizeCalls(enabled=True)


class Spelt(nn.Module):
    """Calls as programs write them."""

    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4, bias=False), nn.SiLU()
        self.norm = nn.BatchNorm1d(4).eval()

    def forward(self, x):
        y = nn.functional.relu(x, inplace=False).permute(1, 0).transpose(dim0=0, dim1=-1)
        z = torch.softmax(input=y * 2 + 1, dim=-1) @ self.norm(self.act(self.linear(x)))
        return nn.functional.relu(z / 2, inplace=True).sum(-1, keepdim=False)


class Identities(nn.Module):
    def __init__(self):
        super().__init__()
        self.same, self.drop = nn.Identity(), nn.Dropout().eval()

    def forward(self, x):
        y = self.drop(self.same(x)).contiguous().to(torch.float32).to("cpu").float()
        return y.t().contiguous().double().detach()


class Dropout(nn.Module):
    def forward(self, x):
        idle = nn.functional.dropout(x, 0.5, training=False)
        return nn.functional.dropout(idle, 0.5, training=True)


def written(x, y):
    z = aten.index_put(x.sin(), [torch.arange(2)], y[:2])
    z = aten.select_scatter(aten.slice_scatter(z, y[1:3], 0, 1, 3), y[0], 1, 2)
    x.copy_(aten.index_add(x, 0, torch.arange(2), y[2:]))
    return z


def early(x, y):
    """The ones can wait; what reads an input stays in front of the write: they may be aliases."""
    ones, sines, old = torch.ones(4, 4), y.t().sin(), x.neg()
    x.copy_(y.exp().tanh())
    return (y.cos() * 2).relu() - ones, x.exp() * sines + old


def sliced(x, y):
    a, b = x.split([1, 3])
    rows = a.squeeze(0) + b[1:][:1].select(0, -1) + b.select(0, 0)
    same = aten.select_scatter(aten.slice_scatter(x.sin(), y, 1, 0, 9), y[0], 0, 0)
    return rows, aten.slice_scatter(same, same[1:2], 0, 1, 2).exp(), b[:, :2]


@torch.library.custom_op("golden::mix_", mutates_args={"x", "y"})
def mix_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(y.mul_(2)).sum()


@mix_.register_fake
def _(x, y):
    return x.new_empty(())


def called(x, y):
    """The sine may be written to; `y` is read again."""
    op, row = torch.ops.golden.mix_.default, {"_y_base_index": 1, "_y_slice_dim": 0}
    views = {"_x_base_index": 0, **row, "_y_slice_start": 0, "_y_slice_end": 1}
    call = torch.ops.higher_order.auto_functionalized_v2(op, **views, _all_bases=[x.sin(), y])
    return call[0] + call[1] + call[2], y.cos()


def both_maxima(x):
    return x.amax(1, keepdim=True), x.max(), x.amin(0), x.amin()


def moved(x):
    ones = torch.ones(4, 4)
    return torch.arange(4).to("meta"), ones.to("meta"), ones.to("meta", torch.float64)


def conv_norm(x, w, b, stat):
    y = nn.functional.conv1d(x, w, b, padding=1)
    return nn.functional.batch_norm(y, stat, stat, None, b, False, 0.1, 0.5)


def permuted(x, y, w, b):
    first = x.transpose(0, 1).contiguous() @ y.t().clone(memory_format=torch.contiguous_format)
    second = nn.functional.linear(first.permute(1, 0).contiguous(), w, b)
    return second, nn.functional.linear(x, w, bias=b).t().contiguous()


class Heads(nn.Module):
    """Two linears that share an input, two that read their results, and products of matrices."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, w):
        a, b = self.first(x).relu(), self.second(x).tanh()
        c = nn.functional.linear(bias=self.first.bias, input=a, weight=w)
        return c, nn.functional.linear(b, w, self.second.bias).sin(), a @ w + torch.mm(b, mat2=w)


def split_and_joined(x, y):
    z = torch.cat(tensors=[torch.cat((x, y), dim=-2), y.sin()]).chunk(3)[2].neg()
    left, right = z.cos().chunk(2, dim=1)
    one, two, three, four = torch.unbind(torch.cat([left, right], axis=-1).exp(), dim=1)
    z = torch.stack([one, two, three, four], dim=1)
    a, b = x.split([1, 3])
    (c, d), e = b.split(split_size=[1, 2]), torch.split(z.exp(), 1, dim=-1)
    return a + c, d, torch.cat([e[0].squeeze(-1).neg()]).cos() + torch.squeeze(e[-1], dim=1)


def gathered(x, y):
    hidden = x * 2
    for each in (x, y):
        hidden = hidden @ gather(each).view(2, 4, 4).sum(0)
    return hidden


def reduced(x, y):
    return reduce(x + y).sin(), reduce(y.neg())


WAVE, TAPS = torch.randn(2, 4, 16), torch.randn(4, 4, 3)
ATEN_CASES = [
    (reinplace.PASS, "forward", lambda: aten_graph(written, X.clone(), X.neg())),
    (reinplace_operators.PASS, "forward", lambda: aten_graph(called, X, X.neg())),
    (reuse_reductions.PASS, "forward", lambda: aten_graph(both_maxima, X)),
    (order_for_locality.PASS, "forward", lambda: aten_graph(early, X.clone(), X.neg())),
    (GATHERS, "forward", lambda: aten_graph(gathered, X, X.neg())),
    (REDUCTIONS, "forward", lambda: aten_graph(reduced, X, X.neg())),
    (OVERLAP, "forward", lambda: aten_graph(gathered, X, X.neg())),
    (simplify_slices.PASS, "forward", lambda: aten_graph(sliced, X, X.neg())),
]


TORCH_CASES = [
    (NORMALIZE, "pre_grad", lambda: torch_graph(Spelt(), X)),
    (remove_identity.PASS, "pre_grad", lambda: torch_graph(Identities(), X)),
    (fold_conv_batch_norm.PASS, "pre_grad", lambda: torch_graph(conv_norm, WAVE, TAPS, B, SCALE)),
    (
        simplify_torch_split_cat.PASS,
        "pre_grad",
        lambda: torch_graph(split_and_joined, X, X.neg()),
    ),
    (BATCH, "pre_grad", lambda: torch_graph(Heads(), X, X)),
    (fuse_permute.PASS, "pre_grad", lambda: torch_graph(permuted, X, X, X, B)),
]
