"""Passes before autograd in what Dynamo captures: sub-graphs, gradients, modes."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder
from tests.unit.passes.test_in_models import ResNet, settled


def compiled_with_log(function, *, dynamic=False, **config):
    """Return a compiled function, and the log that its compiles write."""
    torch._dynamo.reset()
    recorder = Recorder()

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, {**config, "codegen": "eager"}, recorder)

    return torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic), recorder.log


def count(log, name):
    return sum(len(record.rewrites) for record in log.passes() if record.id.name == name)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_gradients_flow_through_folded_batch_norms(layout, dynamic):
    model = settled(ResNet()).eval().to(memory_format=layout)
    other = copy.deepcopy(model)
    compiled, log = compiled_with_log(model, dynamic=dynamic)
    x = torch.randn(2, 3, 12, 12).contiguous(memory_format=layout)
    results, expected = compiled(x), other(x)
    assert count(log, "fold_conv_batch_norm") == 7  # not the transposed one, not the linear one
    for a, b in zip(results, expected, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for each in (results, expected):
        (each[0].square().sum() + each[1].square().sum()).backward()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)


def branches(x):
    y = checkpoint(lambda a: a.relu().contiguous() * 2, x, use_reentrant=False)
    return torch.cond(y.sum() > 0, lambda a: F.relu(a).float(), lambda a: a.cos(), (y,))


def test_passes_reach_sub_graphs():
    wanted = {"normalize_calls": {"enabled": True}}
    compiled, log = compiled_with_log(branches, passes=wanted)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), branches(x), rtol=0, atol=0)
    rules = [rewrite.id.rule for record in log.passes() for rewrite in record.rewrites]
    assert {"contiguous(x) -> x", "float(x) -> x", "x.cos(...) -> cos(x, ...)"} <= {*rules}


CONV, NORM = nn.Conv2d(2, 2, 3, bias=False), settled(nn.BatchNorm2d(2)).eval()


def no_gradient_of_the_product(x):
    with torch.no_grad():
        y = CONV(x)
    return NORM(y)


def in_half(x):
    with torch.autocast("cpu", torch.bfloat16):
        return NORM(CONV(x))


def writes_to_the_weight(x):
    y = F.conv2d(x, x[:, :, :3, :3])
    x.mul_(2)
    return NORM(y)


@pytest.mark.parametrize("program", [no_gradient_of_the_product, in_half, writes_to_the_weight])
def test_a_batch_norm_is_not_folded_where_the_product_would_be_another(program):
    compiled, log = compiled_with_log(program)
    x = torch.randn(2, 2, 8, 8)
    mine, others = x.clone(), x.clone()
    torch.testing.assert_close(compiled(mine), program(others))
    torch.testing.assert_close(mine, others, rtol=0, atol=0)
    assert count(log, "fold_conv_batch_norm") == 0


def test_a_write_through_what_was_contiguous_already_shows_in_both():
    def program(x):
        y = x.contiguous().to(x.dtype)
        y.add_(1)
        return x * 2

    compiled, log = compiled_with_log(program)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x.clone()), program(x.clone()), rtol=0, atol=0)
    assert count(log, "remove_identity") == 2


def products(x, y, w, b):
    image = x.permute(0, 2, 1).contiguous() @ y.transpose(1, 2).contiguous()
    row = F.linear(x[0].t().contiguous(), w, b)
    return image, F.linear(row, w).t().contiguous(), F.linear(y.mT.contiguous(), w[:, :5])


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_take_transposed_operands(train, dynamic):
    shapes = ((2, 6, 3), (2, 5, 6), (6, 6), (6,))
    given = [torch.randn(shape, requires_grad=train) for shape in shapes]
    others = [each.detach().clone().requires_grad_(train) for each in given]
    compiled, log = compiled_with_log(products, dynamic=dynamic)
    for results, expected in [(compiled(*given), products(*others))]:
        for a, b in zip(results, expected, strict=True):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert count(log, "fuse_permute") == 4
    if train:
        sum(each.square().sum() for each in results).backward()
        sum(each.square().sum() for each in expected).backward()
        for a, b in zip(given, others, strict=True):
            assert a.grad.stride() == b.grad.stride()
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)


def detached(z):
    return z.detach(), z[0]


def detached_part(z):
    return z.split(9)[0].detach(), z.t().t()[0]


@pytest.mark.parametrize("program", [detached, detached_part])
def test_a_result_without_a_gradient_leaves_others_theirs(program):
    compiled, _ = compiled_with_log(lambda x: program(x * 2))
    mine, others = (torch.ones(3, 3, requires_grad=True) for _ in range(2))
    results, expected = compiled(mine), program(others * 2)
    assert [each.requires_grad for each in results] == [each.requires_grad for each in expected]
    for each in (results, expected):
        sum(value.sum() for value in each if value.requires_grad).backward()
    torch.testing.assert_close(mine.grad, others.grad)


class Parallel(nn.Module):
    """Linears side by side and behind one another; what they give is returned and written to."""

    def __init__(self, frozen=False):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.parts[1].requires_grad_(not frozen)

    def forward(self, x):
        a, b = self.parts[0](x).relu(), self.parts[1](x).tanh()
        c, d = self.parts[2](a), self.parts[3](b * 2)
        with torch.no_grad():
            e = self.parts[3](b)
        return c, d.add_(1), a, e


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_parallel_linears_have_their_gradients(frozen, dynamic):
    model, x = Parallel(frozen), torch.randn(3, 4, requires_grad=True)
    compiled, log = compiled_with_log(
        model, dynamic=dynamic, passes={"batch_linears": {"enabled": True}}
    )
    results, expected = compiled(x), model(x)
    assert count(log, "batch_linears") == (1 if frozen else 2)
    wanted = [x, *(each for each in model.parameters() if each.requires_grad)]
    for a, b in zip(results, expected, strict=True):
        assert (a.stride(), a.requires_grad) == (b.stride(), b.requires_grad)
        torch.testing.assert_close(a, b)
    sums = [sum(each.square().sum() for each in given) for given in (results, expected)]
    for a, b in zip(*(torch.autograd.grad(each, wanted) for each in sums), strict=True):
        torch.testing.assert_close(a, b)
    if dynamic:
        y = torch.randn(7, 4)
        torch.testing.assert_close(compiled(y), model(y))


def test_autocast_keeps_its_types():
    def program(x):
        with torch.autocast("cpu", torch.bfloat16):
            return F.linear(x, x) + F.linear(x, x.sin()), x.bfloat16() @ x.bfloat16()

    x = torch.randn(4, 4)
    compiled, _ = compiled_with_log(program, passes={"batch_linears": {"enabled": True}})
    for a, b in zip(compiled(x), program(x), strict=True):
        torch.testing.assert_close(a, b)


def parts(x, y):
    with torch.no_grad():
        held = torch.cat([(h := x.chunk(2))[0], h[1]])
    a, b = torch.cat([x.sin(), y.cos()], dim=1).split([4, 4], dim=-1)
    c, d = a.exp().split([1, 3], 1)
    e, f, g = d.chunk(3, dim=1)
    whole = torch.cat([c, d], 1).tanh() * held.sin()
    return whole, e.squeeze(1) + g.squeeze(-1) * f.squeeze(1), torch.cat([b]), torch.cat(x.split(1))


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_splits_and_concatenations_have_their_gradients(dynamic):
    x, y = (torch.randn(4, 4, requires_grad=True) for _ in "xy")
    compiled, log = compiled_with_log(parts, dynamic=dynamic)
    results, expected = compiled(x, y), parts(x, y)
    assert count(log, "simplify_torch_split_cat") >= (1 if dynamic else 2)
    for a, b in zip(results, expected, strict=True):
        assert (a.stride(), a.requires_grad) == (b.stride(), b.requires_grad)
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    sums = [sum(each.square().sum() for each in given) for given in (results, expected)]
    for a, b in zip(*(torch.autograd.grad(each, [x, y]) for each in sums), strict=True):
        torch.testing.assert_close(a, b)


def cast_before_matmul(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        return x.float() @ w


def left_and_entered_again(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        low = x @ w
        with torch.autocast("cpu", enabled=False):
            high = low.float().float() @ w
        return high.float() @ w


def checkpointed(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        return checkpoint(lambda x: x.float() @ w * 2, x, use_reentrant=False)


@pytest.mark.parametrize("function", [cast_before_matmul, left_and_entered_again, checkpointed])
@pytest.mark.parametrize("outer", [False, True])
def test_types_are_those_of_the_region_of_autocast(function, outer):
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    with torch.autocast("cpu", torch.float16, enabled=outer):
        compiled, log = compiled_with_log(function)
        result, expected = compiled(x, w), function(x, w)
    assert count(log, "remove_identity") > 0
    torch.testing.assert_close(result, expected)


def test_products_stay_in_their_region_of_autocast():
    """A linear outside of a region computes in float32, a product behind its copy would not."""

    def function(x, w):
        y = F.linear(x, w)
        with torch.autocast("cpu", torch.bfloat16):
            return y.t().contiguous() + 1

    x, w = torch.randn(4, 4), torch.randn(6, 4)
    compiled, log = compiled_with_log(function)
    torch.testing.assert_close(compiled(x, w), function(x, w))
    assert count(log, "fuse_permute") == 0


TRANSFORMED = {
    "vmap": lambda x, w: torch.func.vmap(lambda a: torch.cat(a.contiguous().split(1)) @ w)(x),
    "vmap twice": lambda x, w: torch.func.vmap(torch.func.vmap(lambda a: a.float() @ w))(x),
    "vmap of grad": lambda x, w: torch.func.vmap(
        torch.func.grad(lambda a: (torch.cat(a.split(1)) @ w).sin().sum())
    )(x),
    "jvp": lambda x, w: torch.func.jvp(lambda a: torch.stack(a.unbind(0)) @ w, (x,), (x,))[1],
    "hessian": lambda x, w: torch.func.hessian(lambda a: (a.contiguous() @ w).sin().sum())(x[0]),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own of `jvp`
@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_rewrite_inside_of_a_transform(name):
    function, x, w = TRANSFORMED[name], torch.randn(3, 2, 4), torch.randn(4, 4)
    compiled = torch.compile(function, backend="ctk")
    torch.testing.assert_close(compiled(x, w), function(x, w))
