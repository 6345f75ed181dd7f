"""What each pass makes of a small graph, as text; and where it must not fire."""

import pytest
import torch

from ctk.compiler.options.config import Config
from ctk.compiler.passes import PASSES
from ctk.compiler.passes.freezing import concat_linear, fold_batch_norm, fold_binary
from ctk.compiler.passes.joint import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    fold_uniform_values,
    fuse_attention,
    remove_noops,
    simplify_casts,
    simplify_views,
)
from ctk.compiler.passes.post_grad import (
    batch_parallel,
    decompose_products,
    fuse_addmm,
    move_constructors,
    simplify_split_cat,
    split_products,
    tune_products,
)
from ctk.compiler.passes.pre_grad import remove_inference_dropout
from tests.golden.test_frozen_passes import CASES as FROZEN_CASES
from tests.golden.test_joint_passes import CASES as JOINT_CASES
from tests.golden.test_quantized_passes import CASES as QUANTIZED_CASES
from tests.golden.torch_cases import ATEN_CASES, TORCH_CASES, Dropout, moved
from tests.helpers.passes import (
    aten_graph,
    rules_of,
    run_pass,
    text_of,
    unchanged,
    without_aliases,
)

X, Y, B = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
aten = torch.ops.aten


def noops(x):
    a = x.clone() * 1
    b = (a - 0).view(4, 4).permute(0, 1)
    return aten.slice.Tensor(b, 0, 0, 4).expand(4, 4).repeat(1, 1) ** 2


def constants(x):
    scale = torch.full((4,), 2.0) * torch.arange(4.0)
    return x * scale.exp()


def repeated(x):
    a, b = torch.exp(x), torch.exp(x)
    return torch.sin(a) + torch.cos(b)


def unused(x):
    torch.exp(x).sin()
    return x + 1


def views(x):
    turned = x.transpose(0, 1).permute(1, 0).view(torch.int32).view(torch.int16)
    return x.t().t().view(16).view(2, 8).neg().neg() * 2, turned + 1


def casts(x):
    rounded = x.bfloat16()
    return rounded.float().bfloat16() * 2, rounded.float(), (x > 0).int().half(), x.half().float()


def linear(x, y, b):
    return torch.relu(b + torch.mm(x, y)) + 1


W, SCALE = torch.randn(4, 4), torch.rand(4) + 1


def batch_norm(x, scale=SCALE, eps=0.1):
    return aten._native_batch_norm_legit_no_training(x, scale, None, scale, scale, 0.1, eps)[0]


def normed(x, y, b):
    image = aten.convolution(y, KERNEL, None, [1], [0], [1], True, [0], 2)
    return batch_norm(torch.addmm(b, x, W)), batch_norm(torch.mm(x, W)), batch_norm(image)


KERNEL, IMAGE = torch.randn(4, 2, 3), torch.randn(2, 4, 8)


def uniforms(x):
    two = torch.ones(4, 4) + torch.ones(2, 8).view(4, 4)
    y = torch.where(two > 1, x.sin() * torch.ones_like(x), two)
    return (y - torch.zeros(4, 4)).exp() * two, two


def split_cat(x, y):
    a, b, c = x.sin().split([1, 1, 2])
    p, q = torch.stack([x.cos(), y.exp()]).tanh().unbind(0)
    moved = torch.cat(x.unbind(1)) + torch.stack(y.split(1), 2).view(16)
    more = torch.cat([y, *x.chunk(2)], 0), torch.stack([p, q], 1)
    whole = torch.cat([torch.cat([a, b, c]).cos().split(4)[0], torch.cat([torch.cat([y, x]), y])])
    return torch.cat([torch.cat([x]), y], 1)[:, 4:].exp(), whole, moved, *more


def in_parallel(x, y, b):
    norm = torch.nn.functional.layer_norm
    return norm(x, (4,), b) @ norm(y, (4,), b + 1), torch.tanh(x), torch.tanh(y) @ x


BATCHED = batch_parallel.BatchParallel(enabled=True)


def binary(x, y):
    image = aten.convolution(y, KERNEL, None, [1], [0], [1], True, [0], 2)
    chain = batch_norm(image * SCALE[:, None] - 1) / 2 + 1
    tokens = torch.mm(x, W).view(2, 2, 4) / 2 + SCALE
    return chain.exp(), 3 * torch.addmm(SCALE, x, W) + SCALE, tokens


def parallel(x):
    rows = torch.addmm(SCALE, x, W), torch.addmm(SCALE, x, W.t()), torch.addmm(B, x, W.neg())
    q, k = torch.mm(x, W), torch.mm(x, W[:, :2])
    return rows[0].relu() + rows[1].view(2, 2, 4).sin().view(4, 4) * rows[2], torch.mm(q, k)


def attention(q, k, v, mask):
    scores = q.exp() @ k.transpose(-2, -1) / 4.0 + mask
    return (torch.softmax(scores, -1) @ v) * 2


def attention_graph():
    """The graph as the passes before leave it."""
    gm = aten_graph(attention, *(torch.randn(2, 3, 5, 8) for _ in "qkv"), torch.randn(5, 5))
    for step in fuse_attention.BEFORE:
        run_pass(gm, step)
    return gm


def products(x, y, b):
    rows = torch.addmm(b, x.bfloat16().float(), y).relu()
    return (
        torch.bmm(rows[None], y[None]),
        torch.mm(x.half(), y.half()),
        torch.addmm(b, x, y, beta=2),
    )


def large(x, y, b):
    return torch.addmm(b, x.sin(), y.t()).relu(), torch.mm(x, y), torch.addmm(b, x, y, beta=2)


EVERY_PRODUCT = decompose_products.DecomposeProducts(enabled="always")
EVERY_LARGE = tune_products.TuneProducts(enabled="always")
EVERY_SPLIT = split_products.SplitProducts(enabled="always")
EAGER = Config(codegen="eager")
CASES = [
    *ATEN_CASES,
    *FROZEN_CASES,
    *QUANTIZED_CASES,
    (remove_noops.PASS, "joint", lambda: aten_graph(noops, X)),
    (fold_constants.PASS, "joint", lambda: aten_graph(constants, X)),
    (eliminate_common_subexpressions.PASS, "joint", lambda: aten_graph(repeated, X)),
    (eliminate_dead_code.PASS, "joint", lambda: aten_graph(unused, X)),
    (simplify_views.PASS, "joint", lambda: without_aliases(aten_graph(views, X))),
    (simplify_casts.PASS, "joint", lambda: aten_graph(casts, X)),
    (fuse_attention.PASS, "joint", attention_graph),
    (EVERY_PRODUCT, "forward", lambda: aten_graph(products, X, Y, B)),
    (EVERY_SPLIT, "forward", lambda: aten_graph(products, X, Y, B)),
    (EVERY_LARGE, "forward", lambda: aten_graph(large, X, Y, B)),
    (fuse_addmm.PASS, "forward", lambda: aten_graph(linear, X, Y, B)),
    *JOINT_CASES,
    (fold_uniform_values.PASS, "joint", lambda: aten_graph(uniforms, X)),
    (simplify_split_cat.PASS, "forward", lambda: aten_graph(split_cat, X, Y)),
    (BATCHED, "forward", lambda: aten_graph(in_parallel, X, Y, B)),
    (move_constructors.PASS, "forward", lambda: aten_graph(moved, X)),
    (fold_binary.PASS, "frozen", lambda: aten_graph(binary, X, IMAGE)),
    (concat_linear.PASS, "frozen", lambda: aten_graph(parallel, X)),
    (fold_batch_norm.PASS, "frozen", lambda: aten_graph(normed, X, IMAGE, B)),
    (remove_inference_dropout.PASS, "pre_grad", lambda: torch.fx.symbolic_trace(Dropout())),
    *TORCH_CASES,
]


@pytest.mark.parametrize(("step", "stage", "graph"), CASES, ids=[c[0].name for c in CASES])
def test_pass_on_a_small_graph(step, stage, graph, golden):
    gm = graph()
    before = text_of(gm)
    record = run_pass(gm, step, stage=stage, config=EAGER)
    assert record.rewrites
    rules = "".join(f"# {rule}\n" for rule in rules_of(record))
    golden(f"passes/{step.name}.txt", f"# before\n{before}{rules}# after\n{text_of(gm)}")


def test_every_pass_has_a_golden_case():
    in_tables = {step.name for steps in PASSES.values() for step in steps}
    assert in_tables == {case[0].name for case in CASES}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone(),  # leaves the graph: the caller may write to it
        lambda x: (x + 0) * 2,  # -0.0 + 0 is 0.0
        lambda x: x.permute(1, 0) * 2,  # equal sizes, other order
        lambda x: aten.slice.Tensor(x, 0, 0, 9, 2).sum(),
        lambda x: (x * 1.5).sin(),
        lambda x: x.to(torch.float64).sin(),
        lambda x: x.repeat(2, 1).sin(),
        lambda x: torch.nn.functional.pad(x, (1, -1)).sin(),  # moves what it keeps
        lambda x: x.floor().sin(),
        lambda x: (y := x.sin(), y.clone()),  # two results: the caller may write to one
        lambda x: (x.t().clone(memory_format=torch.contiguous_format)).sin(),  # other strides
    ],
)
def test_remove_noops_must_not_fire(function):
    assert unchanged(function, remove_noops.PASS, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.bfloat16().float(),  # it rounds
        lambda x: x.half().to(torch.int32).to(torch.int16),  # 65504 has other bits in each
        lambda x: x.to(torch.int32).float().to(torch.int32),  # 2 ** 24 + 1 is no float
        lambda x: x.half().float().to(torch.int16),  # 65504 is beyond: the kernels differ
        lambda x: x.int().bool().int(),
        lambda x: x.int().to(torch.int8).int(),
        lambda x: x.half().bfloat16().float(),  # neither holds the other
        lambda x: x.float().double().to("meta", torch.float32),  # another device
    ],
)
def test_simplify_casts_must_not_fire(function):
    assert unchanged(function, simplify_casts.PASS, X)


def test_remove_noops_keeps_a_copy_of_what_is_written_to():
    def snapshot(x):
        before = x.clone()
        x.add_(1)
        return before * 2

    gm = aten_graph(torch.func.functionalize(snapshot), X.clone())
    clones = [n for n in gm.graph.nodes if n.target is aten.clone.default]
    run_pass(gm, remove_noops.PASS)
    assert [n for n in gm.graph.nodes if n.target is aten.clone.default] == clones != []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.rand_like(x), torch.rand_like(x)),  # two draws
        lambda x: (torch.exp(x), torch.exp(x)),  # two outputs that a caller can tell apart
        lambda x: (x.exp().split(2), aten.unsafe_split(x.exp(), 2)),  # and so are views of them
        lambda x: torch.exp(x * 1) + torch.exp(x * 1.0),  # int and float arguments
    ],
)
def test_common_subexpressions_must_not_fire(function):
    gm = aten_graph(function, X)
    count = len(
        [n for n in gm.graph.nodes if n.target in (aten.exp.default, aten.rand_like.default)]
    )
    run_pass(gm, eliminate_common_subexpressions.PASS)
    assert count == 2
    left = [n for n in gm.graph.nodes if n.target in (aten.exp.default, aten.rand_like.default)]
    assert len(left) == 2


def test_dead_code_keeps_random_draws_and_writes():
    def draws(x):
        torch.rand(2)
        x.add_(1)
        return x.sin()

    gm = aten_graph(draws, X.clone())
    record = run_pass(gm, eliminate_dead_code.PASS)
    assert not record.changed


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.full((4,), 2.0) + x,  # one factory alone stays
        lambda x: torch.rand(4) * torch.full((4,), 2.0) + x,  # random
    ],
)
def test_fold_constants_must_not_fire(function):
    assert unchanged(function, fold_constants.PASS, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.neg(torch.neg(x)),  # leaves the graph as the input itself
        lambda x: x.transpose(0, 1).view(torch.int32).t() * 2,  # not only permutes
        lambda x: x.view(torch.int16)[:, :4].view(torch.float32) * 2,  # not only views of dtypes
    ],
)
def test_simplify_views_must_not_fire(function):
    record = run_pass(without_aliases(aten_graph(function, X)), simplify_views.PASS)
    assert rules_of(record) == []
    assert not record.changed


def shared_product(x):
    y = torch.mm(x, W)
    return batch_norm(y) + y


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, w: batch_norm(torch.mm(x, w)), (X, W)),  # the weight is no constant
        (shared_product, (X,)),
        (lambda x: batch_norm(torch.mm(x, W), eps=0.0), (X,)),  # a variance of 0: 0 * inf
        (lambda x: batch_norm(torch.mm(x.half(), W.half())), (X,)),  # weights would be rounded
        (lambda x, s: batch_norm(torch.mm(x, W), s), (X[:3], SCALE)),  # 12 results, 16 weights
        (lambda x, b: batch_norm(torch.addmm(b, x, W)), (X, torch.randn(4, 1))),  # b is no row
        (lambda x: batch_norm(torch.mm(x, W).t()), (X,)),  # channels are not what the weight makes
    ],
)
def test_fold_batch_norm_must_not_fire(function, inputs):
    assert unchanged(function, fold_batch_norm.PASS, *inputs, stage="frozen")


def writes_to_ones(x):
    ones = torch.ones(4, 4)
    ones.add_(1)
    return x.sin() * ones


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sin() * torch.zeros(4, 4) + 2,  # NaN * 0 is NaN
        lambda x: (x.sin() + torch.zeros(4, 4)) * 2,  # -0.0 + 0 is 0.0
        lambda x: (x.sin() - torch.full((4, 4), -0.0)) * 2,  # and so is -0.0 - -0.0
        lambda x: x * torch.ones(4, 4),  # leaves the graph: x itself would
        lambda x: (torch.ones(4, 4) * x.t()).sin(),  # the strides are those of the ones
        lambda x: (x[0] * torch.ones(4, 4)).sin(),  # broadcasts
        lambda x: (x[0] * torch.ones(4, 4, dtype=torch.float64)).sin(),  # promotes and broadcasts
        lambda x: x.int() * 0.0 + x,  # -0.0
        lambda x: torch.full((4,), 3e9).to(torch.int32) * x,  # out of range
        lambda x: torch.zeros(4).neg() * x,  # -0.0
        lambda x: torch.ones(1).expand(4) * x,  # a view without memory of its own
        lambda x: torch.full((4,), 1e308, dtype=torch.float64) * 10 + x,  # infinite
        lambda x: x * (torch.ones(4) / 3),  # a division may differ between devices
        writes_to_ones,
    ],
)
def test_fold_uniform_values_must_not_fire(function):
    assert unchanged(function, fold_uniform_values.PASS, X)


def both_joined(x, y):
    joined = torch.cat([x, y])
    return joined.sin(), joined  # other users


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.cat([x, y]),
        lambda x, y: torch.stack([x[:2], y[2:]]),
        lambda x, y: torch.cat([*x.split(2)[::-1], y[1:]]),  # another order
        lambda x, y: torch.cat([x[:2], x[1:3]]),  # overlap
        lambda x, y: torch.stack([x[3], x[1], x[0]]),  # backwards
        lambda x, y: torch.stack([x[:2, :2], x[2:, 2:]]),  # along two dimensions
        lambda x, y: torch.cat([x[:2, :2], x[2:, :2].t()]),  # turned
        lambda x, y: torch.cat([x[:1], x[1:1], x[3:]]),  # one is empty
        lambda x, y: torch.cat([x, y])[2:6].cumsum(0),  # a bit of both
        lambda x, y: torch.cat([x, y])[2:8:2].cumsum(0),
        lambda x, y: torch.stack([x, y]).view(32)[8:24].cumsum(0),
        lambda x, y: torch.cat([x, y])[:4],  # leaves the graph
        lambda x, y: torch.cat([x, y], 1)[4:].sin(),
        lambda x, y: torch.cat([torch.cat([x, y]), torch.cat([x, y])], 1),  # another dimension
        lambda x, y: torch.cat([x.t(), y])[:4].view(16).sin(),  # x.t() has no such view
        lambda x, y: torch.cat([x.t(), y])[:4].sin(),  # sin(x.t()) has other strides, and leaves
        lambda x, y: torch.cat([x, y.double()])[:4].sin(),  # promotes
        lambda x, y: torch.cat([x, y.double()]).sin(),
        lambda x, y: torch.cat([x, y])[1:].sin(),  # a function of fewer values
        lambda x, y: torch.cat([x, y]) * 2,
        lambda x, y: torch.cat([x, y]).clamp(0, 1),
        lambda x, y: torch.cat([x[0], y[0], x[1], y[1], x[2]]).sin(),  # of many parts
        both_joined,
    ],
)
def test_simplify_split_cat_must_not_fire(function):
    assert unchanged(function, simplify_split_cat.PASS, X, Y, stage="forward")


def test_simplify_split_cat_keeps_an_inner_cat_with_other_users():
    def program(x, y):
        inner = torch.cat([x, y])
        return torch.cat([inner, x]), inner

    assert unchanged(program, simplify_split_cat.PASS, X, Y, stage="forward")


def used_here_too(x):
    ones = torch.ones(4, 4)
    return ones.to("meta"), x * ones


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.arange(0.5, 4).to("meta"),  # may be rounded differently there
        lambda x: torch.rand(4).to("meta"),  # random
        lambda x: torch.ones(4).to(torch.float64) * x,  # stays here
        lambda x: x.new_ones(4).to("meta"),  # is where x is
        used_here_too,
    ],
)
def test_move_constructors_must_not_fire(function):
    assert unchanged(function, move_constructors.PASS, X, stage="forward")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.mm(x, W), torch.mm(x, W.t()).sin()),  # the caller sees one
        lambda x: (torch.mm(x, W).view(16).sin(), torch.mm(x, W.t()).sin()),  # no such view then
        lambda x: torch.mm(x, W) + torch.mm(x.sin(), W),  # not the same operand
        lambda x: torch.mm(x, W) + torch.mm(x, x),  # no constant
        lambda x: torch.mm(x, W) + torch.addmm(SCALE, x, W),  # of two kinds
        lambda x: torch.mm(x, W).sin(),  # one alone
        lambda x: torch.addmm(W, x, W) + torch.addmm(W, x, W.t()),  # biases that are no rows
        lambda x: (torch.mm(x, W)[:1].detach(), torch.mm(x, W.t()).sin()),  # a view of it leaves
    ],
)
def test_concat_linear_must_not_fire(function):
    assert unchanged(function, concat_linear.PASS, X, stage="frozen")
