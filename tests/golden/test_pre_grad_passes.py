"""Where the passes before autograd must not fire."""

import pytest
import torch
from torch import nn

from ctk.compiler.passes.pre_grad import (
    batch_linears,
    fold_conv_batch_norm,
    fuse_permute,
    remove_identity,
    simplify_torch_split_cat,
)
from tests.golden.torch_cases import BATCH, NORMALIZE, SCALE, TAPS, WAVE, X
from tests.helpers.passes import rules_of, run_pass, torch_graph


def untouched(program, step, *inputs):
    gm = torch_graph(program, *inputs)
    record = run_pass(gm, step, stage="pre_grad")
    return rules_of(record) == [] and not record.changed


class Hooked(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.inner = module
        module.register_forward_hook(lambda *given: given[-1] * 2)

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.relu_(),
        lambda x: nn.functional.relu(x, True),
        lambda x: torch.add(x, 1, out=x),
        lambda x: 2 / x,  # reciprocal, times 2
        lambda x: 2 - x,
        lambda x: torch.addmm(x, x, x),  # not in the table
        lambda x: x.expand(4, 4).view(16),  # only a method
        lambda x: torch.relu(x),  # as it is wanted
        lambda x: torch.sum(x, 0, True),
        Hooked(nn.ReLU()),
        nn.Sequential(nn.ReLU(inplace=True)),
        nn.Sequential(nn.BatchNorm1d(4)),  # counts its calls
        nn.Sequential(nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular")),
    ],
)
def test_normalize_calls_must_not_fire(program):
    assert untouched(program, NORMALIZE, X)


def reshaped(x):
    y = x.t().contiguous()
    y.t_()
    return y.contiguous()


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.t().contiguous(),
        lambda x: x.view(1, 1, 4, 4).contiguous(memory_format=torch.channels_last),
        lambda x: x.to(torch.float32, copy=True),
        lambda x: x.to(torch.float32, False, True),
        lambda x: x.to(torch.float64),
        lambda x: x.detach(),
        lambda x: x.clone(),
        lambda x: x.view(4, 4),
        reshaped,  # the strides that are known of it are not those that it had
        nn.Sequential(nn.Dropout()),
        Hooked(nn.Identity()),
    ],
)
def test_remove_identity_must_not_fire(program):
    assert untouched(program, remove_identity.PASS, X)


def with_norm(between=lambda x, y: y, training=False, eps=0.5):
    def program(x, w, stat):
        y = between(x, nn.functional.conv1d(x, w, None, padding=1))
        return nn.functional.batch_norm(y, stat, stat, None, None, training, 0.1, eps)

    return program


def writes_first(x, y):
    x.add_(1)
    return y


@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        (with_norm(training=True), (WAVE, TAPS, SCALE)),
        pytest.param(
            *(with_norm(eps=0.0), (WAVE, TAPS, SCALE)),
            marks=pytest.mark.skipif(torch.__version__ < "2.12", reason="torch 2.11 refuses it"),
        ),
        (with_norm(writes_first), (WAVE, TAPS, SCALE)),
        (with_norm(lambda x, y: y.relu()), (WAVE, TAPS, SCALE)),
        (with_norm(lambda x, y: torch.add(y, y.sum())), (WAVE, TAPS, SCALE)),
        (with_norm(), (WAVE[:1, :, :8], TAPS, SCALE)),  # 32 results, 48 weights
        (with_norm(), (WAVE.half(), TAPS.half(), SCALE.half())),
        (with_norm(), (torch.randn(4, 4, 16)[0], TAPS, torch.rand(16) + 1)),  # no batch
    ],
)
def test_fold_conv_batch_norm_must_not_fire(program, inputs):
    assert untouched(program, fold_conv_batch_norm.PASS, *inputs)


def shared_copy(x):
    y = x.t().contiguous()
    return y @ x, y


def written_operand(x):
    y = x.t().contiguous()
    x.add_(1)
    return y @ x


def in_between(x):
    y = nn.functional.linear(x, x)
    x.mul_(2)
    return y.t().contiguous()


CUBE = torch.randn(3, 4, 4)


@pytest.mark.parametrize(
    ("program", "given"),
    [
        (shared_copy, X),
        (written_operand, X),
        (in_between, X),
        (lambda x: x.t() @ x, X),  # there is no copy
        (lambda x: x.t().contiguous() + x, X),
        (lambda x: x.t().clone() @ x, X),  # a copy with the strides of x.t()
        (
            lambda x: x.transpose(0, 1).contiguous() @ x.transpose(0, 1),
            torch.randn(4, 4, 4),
        ),  # batch,
        (lambda x: x.transpose(-1, -2).contiguous() @ x[0], CUBE),  # of other ranks
        (lambda x: x.t().contiguous() @ x, X.long()),
        (lambda x: nn.functional.linear(x[0], x[1]).t().sin().contiguous(), CUBE),
        (lambda x: nn.functional.linear(x.transpose(1, 2).contiguous(), x[0]), CUBE),  # gradients
    ],
)
def test_fuse_permute_must_not_fire(program, given):
    assert untouched(program, fuse_permute.PASS, given)


def written_between(x):
    y = nn.functional.linear(x, x)
    x.mul_(2)
    return y + nn.functional.linear(x, x)


def draws_between(x):
    y = nn.functional.dropout(x @ x)
    return y + nn.functional.dropout(x) @ x


def shared_statistics(x):
    norm = nn.functional.batch_norm
    y = norm(x @ x, SCALE.clone(), SCALE.clone(), training=True)
    return y + norm(x, x[0], x[1], training=True) @ x


@pytest.mark.parametrize(
    ("program", "given"),
    [
        (lambda x: (x @ x) @ x, X),  # one needs the other
        (lambda x: (x @ x).sin() @ x, X),
        (lambda x: x @ x + nn.functional.linear(x, x), X),  # of two kinds
        (lambda x: nn.functional.linear(x, x) + nn.functional.linear(x, x, x[0]), X),  # a bias
        (lambda x: x[:2] @ x + (x @ x)[:2], X),  # of two shapes
        (lambda x: (x[0] @ x[1], x[1] @ x[2]), X),  # of vectors
        (lambda x: (x[0] @ x, x[1] @ x), X),
        (lambda x: (x @ x[0], x @ x[1]), torch.randn(3, 3, 3)),
        (lambda x: (x @ x, x @ x.neg()), X.long()),
        (lambda x: (torch.mm(x, x, out=x), torch.mm(x, x, out=x)), X),
        (written_between, X),
        (draws_between, X),  # the numbers would be others
        (shared_statistics, X),  # statistics of a batch, which are written
    ],
)
def test_batch_linears_must_not_fire(program, given):
    assert untouched(program, BATCH, given)


def test_batch_linears_is_off_and_has_limits():
    def program(x):
        return x @ x + x @ x.neg()

    assert untouched(program, batch_linears.PASS, X)
    assert untouched(program, batch_linears.BatchLinears(True, min_group=3), X)
    assert untouched(program, batch_linears.BatchLinears(True, max_size=63), X)
    assert not untouched(program, batch_linears.BatchLinears(True, max_size=64), X)


def parts_of(x, then, **options):
    a, b = x.split(2, **options)
    return then(a, b)


def written_later(x):
    y = parts_of(x, lambda a, b: torch.cat([a, b]))
    x.add_(1)
    return y.sin()


@pytest.mark.parametrize(
    "program",
    [
        lambda x: parts_of(x, lambda a, b: torch.cat([a, b])),  # returned: a copy
        lambda x: parts_of(x, lambda a, b: torch.cat([a, b]).t()),  # a view of it is
        lambda x: parts_of(x, lambda a, b: torch.cat([b, a]).sin()),
        lambda x: parts_of(x, lambda a, b: torch.cat([a, b, b]).sin()),
        lambda x: parts_of(x, lambda a, b: torch.cat([a, b], 1).sin()),
        lambda x: parts_of(x.t(), lambda a, b: torch.cat([a, b], -1).sin()),
        lambda x: parts_of(x.t(), lambda a, b: torch.cat([a, b]).sin()),  # has other strides
        lambda x: torch.cat([x]),
        lambda x: torch.cat([x, x.double()]).split(4)[0].sin(),  # converts
        lambda x: torch.cat([x, x]).split([3, 5])[0].sin(),
        lambda x: torch.cat([x, torch.cat([x, x], 1)[:, :4]]),
        lambda x: torch.cat([x.t(), torch.cat([x, x])]),
        lambda x: x.split(1)[0].squeeze(1),  # does nothing
        lambda x: x.split(1)[0].squeeze(),  # of all dimensions
        lambda x: x.split(1, 1)[0].split(1)[0],  # along another dimension
        lambda x: parts_of(x, lambda a, b: (a.split(1)[0], a)),  # somebody needs the whole
        written_later,
    ],
)
def test_simplify_torch_split_cat_must_not_fire(program):
    assert untouched(program, simplify_torch_split_cat.PASS, X)
