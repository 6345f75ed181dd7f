"""Joint passes reach sub-graphs (branches, loops, mapped, checkpointed); users' passes too."""

import importlib

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ctk.compiler.options.config import Config
from ctk.compiler.passes import PASSES
from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder

JOINT = {step.name for step in PASSES["joint"]}
X = torch.randn(5, 5)


def body(x):
    """Something for each joint pass."""
    y = (x.t().t() * 1).double().float()
    y = y + torch.zeros(5, 5).scatter(1, y.argmax(1, keepdim=True), 1.0) * 2
    y = y.exp() + y.exp() * torch.ones_like(y)
    y.cos()
    y = torch.index_add(y, 0, torch.randperm(y.shape[0])[:1], y[:1])
    y = torch.mm(y[:, :3], y.t()[:3, :]) / 100
    heads = y[None, None]
    y = y + (torch.softmax(heads @ heads.transpose(-1, -2) / 2.0, -1) @ heads)[0, 0]
    noise = torch.ops.aten.exponential.default(torch.empty_like(y))
    y = y + torch.argmax(torch.softmax(y, -1) / noise, -1, keepdim=True)
    y = y + torch.mm(y, torch.ones(5, 8)).logsumexp(-1).square().mean()
    known = torch.arange(4.0).exp() + torch.full((4,), 2.0)
    return (y * torch.rand(y.shape)).tanh() + known.sum() / 100


def branches(x):
    return torch.cond(x.sum() > 0, lambda x: body(x) + 1, lambda x: body(x) - 1, (x,))


def loop(x):
    def step(i, x):
        return i + 1, body(x)

    while_loop = torch.ops.higher_order.while_loop
    return while_loop(lambda i, x: i < 2, step, (torch.tensor(0), x), ())[1]


def mapped(x):
    hop = importlib.import_module("torch._higher_order_ops.map").map
    return hop(lambda row, y: body(y) + row, x, x + 1)


def checkpointed(x):
    return checkpoint(body, x, use_reentrant=False)


def compiled(function, config, *, train):
    torch._dynamo.reset()
    recorder = Recorder()

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, config, recorder)

    x = X.clone().requires_grad_(train)
    result = torch.compile(function, backend=backend)(x)
    if train:
        result.sum().backward()
    assert result.isfinite().all()
    return recorder.log


ALL = {
    "codegen": "eager",
    "pad_mm.enabled": "always",
    "replace_random.enabled": True,
    "sample_by_gumbel_max.enabled": True,
    "chunk_losses.enabled": True,
    "chunk_losses.min_nbytes": 0,
    "chunk_losses.min_ratio": 0.0,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "train"),
    [
        (branches, False),
        (branches, True),
        (loop, False),  # torch itself does not compile its backward
        (mapped, False),
        (mapped, True),
        (checkpointed, True),  # torch refuses random numbers in it without a backward
    ],
)
def test_every_joint_pass_works_in_sub_graphs(function, train):
    log = compiled(function, Config().patch(ALL), train=train)
    worked = {each.id.name for each in log.passes() if each.id.stage == "joint" and each.rewrites}
    assert worked == JOINT


def test_users_passes_run_before_and_behind_those_of_a_stage():
    seen = []

    def first(rewriter):
        seen.append(("first", len(rewriter.graph.nodes)))

    def last(rewriter):
        seen.append(("last", len(rewriter.graph.nodes)))

    slots = {f"{place}{stage}": (user,) for place, user in (("before_", first), ("", last))
             for stage in ("pre_grad", "joint", "post_grad")}  # fmt: skip
    log = compiled(branches, Config(codegen="eager", custom_passes=slots), train=True)
    for stage in ("pre_grad", "joint", "forward", "backward"):
        ran = [each.id.name for each in log.passes() if each.id.stage == stage]
        assert (ran[0], ran[-1]) == ("first", "last")
        assert ran.count("first") == ran.count("last") == 1
    assert len([each for each in seen if each[0] == "first"]) > 8  # the branches, too
