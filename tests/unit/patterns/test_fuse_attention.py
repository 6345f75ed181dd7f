"""`fuse_attention` in models: numbers and gradients as in eager, and where it must not fire."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from ctk import save_case
from ctk.compiler.options.config import Config
from ctk.compiler.passes.joint.fuse_attention import ALL_RULES, PASS, RULES
from ctk.compiler.patterns.matcher import why_not
from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder
from ctk.toolkit.compile_log.unfired_rules import explain_rule
from tests.helpers.case_zoo import capture
from tests.helpers.cli import ctk


def compiled(function, *inputs, dynamic=None, config=None):
    """Return what a compiled function returns, and the log of its compile."""
    torch._dynamo.reset()
    recorder = Recorder()
    run = torch.compile(
        function,
        backend=lambda gm, args: compile_fx(gm, args, observer=recorder, config=config),
        dynamic=dynamic,
    )
    return run(*inputs), recorder.log


def rules(log):
    return [
        rewrite.id.rule
        for record in log.passes()
        if record.id.name == PASS.name
        for rewrite in record.rewrites
    ]


class Attention(nn.Module):
    """Self-attention as people write it: heads are split, transposed, and put together again."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, x, mask=None):
        heads = self.project(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k, v = heads
        scores = q @ k.transpose(2, 3) / math.sqrt(8)
        scores = scores if mask is None else scores + mask
        out = torch.softmax(scores, dim=3) @ v
        return out.transpose(1, 2).reshape(x.shape)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_layer_is_fused_in_inference_and_training(dynamic):
    torch.manual_seed(0)
    model, x = Attention(), torch.randn(2, 6, 32)
    with torch.no_grad():
        out, log = compiled(model, x, dynamic=dynamic)
        assert rules(log) == ["attention_inference"]
        torch.testing.assert_close(out, model(x))
    out, log = compiled(model, x, dynamic=dynamic)
    assert rules(log) == ["attention_training"]
    weights = tuple(model.parameters())
    mine = torch.autograd.grad(out.square().sum(), weights)
    others = torch.autograd.grad(model(x).square().sum(), weights)
    torch.testing.assert_close(mine, others, atol=1e-4, rtol=1e-4)


class Encoder(nn.Module):
    """A transformer encoder that is written out: two layers, padding masked."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 32)
        self.attend = nn.ModuleList(Attention() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.widen = nn.ModuleList(nn.Linear(32, 64) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(64, 32) for _ in range(2))

    def forward(self, tokens):
        mask = torch.where(tokens == 0, -torch.inf, 0.0)[:, None, None, :]
        x = self.embed(tokens)
        for i in range(2):
            x = x + self.attend[i](self.norms[2 * i](x), mask)
            hidden = functional.gelu(self.widen[i](self.norms[2 * i + 1](x)))
            x = x + self.narrow[i](hidden)
        return x


def test_an_encoder_keeps_its_numbers_and_shows_the_rewrites(tmp_path):
    torch.manual_seed(0)
    model, tokens = Encoder(), torch.randint(1, 11, (3, 6))
    tokens[1, 4:] = 0
    weights = tuple(model.parameters())
    out, log = compiled(model, tokens)
    assert rules(log) == ["attention_training"] * 2
    torch.testing.assert_close(out, model(tokens))
    mine = torch.autograd.grad(out.square().sum(), weights)
    others = torch.autograd.grad(model(tokens).square().sum(), weights)
    torch.testing.assert_close(mine, others, atol=1e-3, rtol=1e-4)
    with torch.no_grad():
        (case,) = capture(model.eval(), tokens)
    save_case(case, tmp_path / "case")
    shown = ctk("show", tmp_path / "case", "--times", "--json")
    (graph,) = shown.data["graphs"]
    steps = {step["name"]: step for step in graph["steps"]}
    assert steps["fuse_attention"]["rewrites"] == 2


Q = torch.randn(2, 3, 5, 8)


def attend(q, k, v, scale=2.0, dim=-1):
    return (torch.softmax(q @ k.transpose(-2, -1) / scale, dim) @ v).sin()


def filled(q, k, v, low, added=None):
    scores = (q @ k.mT).masked_fill(q[..., :5] > 1, low)
    return (scores if added is None else scores + v[..., :5]).softmax(-1) @ v


def returns_weights(q, k, v):
    weights = torch.softmax(q @ k.transpose(-2, -1) / 2.0, -1)
    return weights @ v, weights


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda q, k, v: attend(q, k, v, dim=-2), "a softmax of the dimension -2, not -1"),
        (lambda q, k, v: attend(q, k, v, scale=v[0, 0, 0, 0]), "div is a aten.div.Tensor, not a"),
        (lambda q, k, v: attend(q, k, v, scale=0.0), "div is a aten.div.Tensor, not a"),
        (lambda q, k, v: q.softmax(-1) @ v.mT, "arg0_1 is a placeholder, not a product of scores"),
        (lambda q, k, v: (q @ k.mT).softmax(-1).relu() @ v, "no product of _softmax and values"),
        (lambda q, k, v: v.mT @ (q @ k.mT).softmax(-1), "no product of _softmax and values"),
        (lambda q, k, v: ((q @ k.mT + v[..., :5]) * 2).softmax(-1) @ v, "scores that are masked"),
        (lambda q, k, v: filled(q, k, v, -100.0), "the scores are filled with -100.0, above"),
        (lambda q, k, v: filled(q, k, v, -1e9, added=1.0), "-1000000000.0, above -1e+30"),
        (returns_weights, "outside the match, needs"),
        (lambda q, k, v: attend(q, k.sin(), v).mean() + attend(q, k, v).var(), None),
        (lambda q, k, v: (q @ k.transpose(-2, -1) / 2.0).sigmoid() @ v, "no node calls"),
    ],
)
def test_must_not_fire(function, reason):
    _, log = compiled(function, Q, Q.cos(), Q.sin())
    (said,) = explain_rule(log, "attention_inference")
    if reason is None:
        assert said.fired == 2
    else:
        assert rules(log) == []
        assert reason in str(said)


def test_the_forward_graph_of_symbolic_sizes_reads_none_off_a_gradient():
    inputs = [each.clone().requires_grad_() for each in (Q, Q.cos(), Q.sin())]

    def program(q, k, v):
        weights = torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
        return torch.einsum("bhqk,bhkd->bhqd", weights, v)

    out, log = compiled(program, *inputs, dynamic=True)
    assert rules(log) == ["attention_training"]
    mine, others = (
        torch.autograd.grad(each.square().sum(), inputs) for each in (out, program(*inputs))
    )
    torch.testing.assert_close(mine, others, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sizes", [(2, 3, 5, 5), (1, 3, 5, 5), (5,)])
def test_a_mask_that_requires_a_gradient_gets_it(sizes):
    inputs = [each.clone().requires_grad_() for each in (Q, Q.cos(), Q.sin())]
    masks = [torch.randn(sizes, requires_grad=True), torch.randn(5, 5)]

    def program(q, k, v, mask, other):
        return torch.softmax(q @ k.mT / 2.0 + mask + other, -1) @ v

    out, log = compiled(program, *inputs, *masks)
    assert rules(log) == ["attention_training"]
    eager = program(*inputs, *masks)
    wanted = [*inputs, masks[0]]
    mine, others = (torch.autograd.grad(each.square().sum(), wanted) for each in (out, eager))
    torch.testing.assert_close(mine, others, atol=1e-5, rtol=1e-5)


def test_a_mask_below_a_fill_that_requires_a_gradient_is_left_alone():
    inputs = [each.clone().requires_grad_() for each in (Q, Q.cos(), Q.sin())]
    mask = torch.randn(2, 3, 5, 5, requires_grad=True)

    def program(q, k, v, mask):
        return (q @ k.mT + mask).masked_fill(mask > 0, -torch.inf).softmax(-1) @ v

    _, log = compiled(program, *inputs, mask)
    assert rules(log) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "draws other random numbers than eager does"),
        ({"draws_otherwise": True}, "torch has no fused kernel for these operands"),
    ],
)
def test_dropout_is_left_alone_on_the_cpu(options, reason):
    inputs = [each.clone().requires_grad_() for each in (Q, Q.cos(), Q.sin())]

    def program(q, k, v):
        return functional.dropout(torch.softmax(q @ k.mT / 2.0, -1), 0.3) @ v

    _, log = compiled(program, *inputs, config=Config(passes={"fuse_attention": options}))
    assert rules(log) == []
    (record,) = [each for each in log.passes() if each.id.name == PASS.name]
    table = ALL_RULES if options else RULES
    (rule,) = [r for r in table.rules if r.name == "attention_training"]
    assert reason in (why_not(rule, record.before.graph) or "")


def test_a_mask_of_another_kind_is_left_alone():
    def added(q, k, v, mask):
        return (torch.softmax(q @ k.mT / 2.0 + mask, -1) @ v).sin()

    mask = torch.ones(5, 5).bool().tril()
    out, log = compiled(added, Q, Q.cos(), Q.sin(), mask)
    assert rules(log) == []
    torch.testing.assert_close(out, added(Q, Q.cos(), Q.sin(), mask))
    (said,) = explain_rule(log, "attention_inference")
    assert "is bool[5, 5]" in str(said)


@pytest.mark.parametrize("empty", ["keys", "queries", "batch"])
def test_empty_tensors_are_left_alone(empty):
    q, k, v = Q, Q.cos(), Q.sin()
    if empty == "keys":
        k, v = k[:, :, :0], v[:, :, :0]
    elif empty == "queries":
        q = q[:, :, :0]
    else:
        q, k, v = q[:0], k[:0], v[:0]
    out, log = compiled(attend, q, k, v)
    assert rules(log) == []
    torch.testing.assert_close(out, attend(q, k, v))
