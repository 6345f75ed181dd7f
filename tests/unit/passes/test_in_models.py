"""Each pass at work inside a model that `torch.compile` hands to the pipeline, against eager."""

import copy

import pytest
import torch
from torch import nn

from ctk.compiler.backend import ctk
from ctk.compiler.passes import PASSES
from ctk.compiler.pipeline import compile_fx
from ctk.repro_templates.numbers.tolerance import TABLE, tolerance_for
from ctk.toolkit.compile_log.recorder import Recorder

NUMERICS = {step.name: step.numerics for steps in PASSES.values() for step in steps}


def fired(model, *inputs, step, dynamic=False, train=False, **config):
    """Compile a model, compare it with eager within what the step declares of its numbers.

    Returns:
        How many rewrites the step made in all stages.
    """
    torch._dynamo.reset()
    recorder = Recorder()

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, {**config, "codegen": "eager"}, recorder)

    for target in (backend, ctk):
        mine, others = copy.deepcopy(model).train(train), copy.deepcopy(model).train(train)
        options = {"options": {**config, "codegen": "torchscript"}} if target is ctk else {}
        compiled = torch.compile(mine, backend=target, dynamic=dynamic, **options)
        with torch.set_grad_enabled(train):
            compare(compiled(*inputs), others(*inputs), step)
        if train:
            for each in (compiled, others):
                total(each(*inputs)).backward()
            for a, b in zip(mine.parameters(), others.parameters(), strict=True):
                compare(a.grad, b.grad, step)
    return sum(len(r.rewrites) for r in recorder.log.passes() if r.id.name == step)


def total(values):
    return sum(v.square().sum() for v in values) if isinstance(values, tuple) else values.sum()


def compare(result, expected, step):
    results = result if isinstance(result, tuple) else (result,)
    others = expected if isinstance(expected, tuple) else (expected,)
    numerics = NUMERICS[step]
    for a, b in zip(results, others, strict=True):
        assert a.stride() == b.stride()
        assert (a.dtype, a.device, a.shape) == (b.dtype, b.device, b.shape)
        if b.device.type == "meta":  # has no numbers
            continue
        row = tolerance_for(b.dtype, TABLE[numerics])
        torch.testing.assert_close(a, b, rtol=row.rtol, atol=row.atol, equal_nan=True)


def settled(model):
    """Give batch norms statistics and weights as a trained model has them."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for tensor in (module.running_mean, module.running_var, module.weight, module.bias):
                if tensor is not None:
                    with torch.no_grad():
                        tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return model


class Block(nn.Module):
    def __init__(self, width=8, kernel=3, groups=1):
        super().__init__()
        padding = kernel // 2
        self.first = nn.Conv2d(width, width, kernel, padding=padding, bias=False, groups=groups)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 1)
        self.norm2 = nn.BatchNorm2d(width, affine=False)

    def forward(self, x):
        y = self.norm(self.first(x)).relu()
        return (self.norm2(self.second(y)) + x).relu()


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.blocks = nn.Sequential(Block(), Block(kernel=1), Block(groups=4))
        self.up = nn.Sequential(nn.ConvTranspose2d(8, 8, 3, groups=2), nn.BatchNorm2d(8))
        self.head = nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5))

    def forward(self, x):
        y = self.up(self.blocks(self.stem(x)))
        return self.head(y.mean((2, 3))), y


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_fold_batch_norm_in_a_resnet(layout):
    model = settled(ResNet()).to(memory_format=layout)
    x = torch.randn(2, 3, 12, 12).contiguous(memory_format=layout)
    assert fired(model, x, step="fold_batch_norm", freezing=True) == 9


def test_fold_batch_norm_of_dimensions():
    class Convolutions(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.one = nn.Sequential(nn.Conv1d(4, 4, 3, groups=2), nn.BatchNorm1d(4))
            self.three = nn.Sequential(nn.ConvTranspose3d(4, 6, 2), nn.BatchNorm3d(6))
            self.linear = nn.Sequential(nn.Linear(5, 4, bias=False), nn.BatchNorm1d(4))

        def forward(self, x, y, z):
            return self.one(x), self.three(y), self.linear(z)

    inputs = torch.randn(2, 4, 16), torch.randn(2, 4, 4, 4, 4), torch.randn(16, 5)
    model = settled(Convolutions())
    assert fired(model, *inputs, step="fold_batch_norm", freezing=True) == 3
    assert fired(model, *inputs, step="fold_batch_norm") == 0
    assert fired(model, *inputs, step="fold_batch_norm", train=True, freezing=True) == 0


def test_fold_batch_norm_of_constant_statistics_folds_to_constants():
    def program(x):
        return nn.functional.batch_norm(nn.functional.linear(x, weight), mean, var, eps=0.5)

    torch.manual_seed(0)
    weight, mean, var = (nn.Parameter(torch.rand(size)) for size in ((4, 3), (4,), (4,)))
    recorder = Recorder()
    options = {"freezing": True, "disable": ["prepack_linear"]}
    torch._dynamo.reset()
    compiled = torch.compile(program, backend=lambda g, i: compile_fx(g, i, options, recorder))
    with torch.no_grad():
        x = torch.randn(1, 3)
        torch.testing.assert_close(compiled(x), program(x), rtol=2**-14, atol=1e-5)
    last = recorder.log.passes()[-1].after.graph
    calls = [node.target for node in last.nodes if node.op == "call_function"]
    assert calls == [torch.ops.aten.addmm.default]


class Encoder(nn.Module):
    """A transformer encoder layer with a mask that may be all true."""

    def __init__(self, width=8, heads=2):
        super().__init__()
        torch.manual_seed(0)
        self.heads = heads
        self.qkv = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (each(x).view(batch, time, self.heads, -1).transpose(1, 2) for each in self.qkv)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        mask = torch.ones(time, time, dtype=torch.bool)
        scores = torch.where(mask == torch.ones_like(mask), scores, float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, width)
        y = self.norm(x + self.out(y) * torch.ones_like(y))
        return self.norm(y + self.mlp(y))


TOKENS = torch.randn(2, 6, 8)


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True])
def test_fold_uniform_values_in_an_encoder(train):
    assert fired(Encoder(), TOKENS, step="fold_uniform_values", train=train) >= 3
    assert fired(Encoder(), TOKENS, step="fold_uniform_values", train=train, dynamic=True) >= 1


class Rotary(Encoder):
    """An encoder that turns halves of its tokens, puts them together, and has a cache."""

    def forward(self, x):
        first, second = x.sin().chunk(2, -1)
        tokens = torch.cat([torch.cat([first, second], -1).cos(), x], 1)
        past = torch.cat([torch.cat([tokens, x], 1), x], 1)
        return super().forward(tokens[:, : x.shape[1]].exp()), past


@pytest.mark.parametrize("train", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_simplify_split_cat_in_an_encoder(train):
    options = {"step": "simplify_split_cat", "disable": ["simplify_torch_split_cat"]}
    assert fired(Rotary(), TOKENS, train=train, **options) >= 2
    assert fired(Rotary(), TOKENS, train=train, dynamic=True, **options) >= 1


@pytest.mark.parametrize("train", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_simplify_torch_split_cat_in_an_encoder(train):
    assert fired(Rotary(), TOKENS, step="simplify_torch_split_cat", train=train) >= 2


class Positions(Encoder):
    """An encoder that gives its caller positions and a mask that another device will use."""

    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).to("meta")
        return super().forward(x), torch.arange(x.shape[1]).to("meta"), mask


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_move_constructors_in_an_encoder(dynamic):
    found = fired(Positions(), TOKENS, step="move_constructors", dynamic=dynamic)
    assert found == (2 if dynamic else 1)  # ones of known sizes are folded


class Scaled(ResNet):
    """A network that scales and shifts what its layers give."""

    def forward(self, x):
        y = (self.stem[0](x) * 2 - 1).relu()
        z = self.blocks[2].first(y) / 3 + 0.5
        return self.head[0](z.mean((2, 3))) * 0.5, self.up[0](z).sub(1.5)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_fold_binary_in_a_network(layout, dynamic):
    model = Scaled().to(memory_format=layout)
    x = torch.randn(2, 3, 12, 12).contiguous(memory_format=layout)
    assert fired(model, x, step="fold_binary", dynamic=dynamic, freezing=True) == 6
    assert fired(model, x, step="fold_binary", dynamic=dynamic) == 0


class Parallel(nn.Module):
    """An MLP with gates: linears side by side."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.up = (nn.Linear(8, 16, bias=False) for _ in range(2))
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize("model", [Parallel(), Encoder()], ids=["mlp", "encoder"])
def test_concat_linear_in_models(model):
    assert fired(model, TOKENS, step="concat_linear", freezing=True) == 1
    assert fired(model, TOKENS, step="concat_linear", train=True, freezing=True) == 0
