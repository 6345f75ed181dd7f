"""Layers of frozen graphs that oneDNN computes, one at a time, against eager."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ctk.compiler.pipeline import compile_fx
from ctk.compiler.torch_compat.inductor import onednn
from ctk.toolkit.compile_log.recorder import Recorder

TOLERANCES = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (3e-2, 3e-2)}
needs_bfloat16 = pytest.mark.skipif(
    not onednn.runs(torch.bfloat16), reason="this CPU does not compute with bfloat16"
)
DTYPES = [torch.float32, pytest.param(torch.bfloat16, marks=needs_bfloat16)]
LAYERS = {
    "linear": (lambda: nn.Linear(8, 6), (5, 8)),
    "conv": (lambda: nn.Conv2d(4, 6, 3, padding=1), (2, 4, 6, 5)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2), (1, 2, 4, 5, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), (2, 4, 5, 6)),
}
FUNCTIONS = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
}
LOSES_NAN = {"relu": F.relu, "hardtanh": F.hardtanh, "hardsigmoid": F.hardsigmoid}


def frozen(model, *inputs, options=None):
    """Return the results of a compiled frozen model, and how often each pass fired."""
    torch._dynamo.reset()
    recorder = Recorder(keep_rewrites=True)
    settings = {"freezing": True, **(options or {})}
    compiled = torch.compile(
        model, backend=lambda gm, args: compile_fx(gm, args, settings, recorder)
    )
    with torch.no_grad():
        result = compiled(*inputs)
    records = [each for each in recorder.log.passes() if each.id.stage == "frozen"]
    return result, {each.id.name: len(each.rewrites) for each in records}


def compare(result, expected):
    rtol, atol = TOLERANCES[expected.dtype]
    assert (result.stride(), result.dtype) == (expected.stride(), expected.dtype)
    torch.testing.assert_close(result, expected, rtol=rtol, atol=atol, equal_nan=True)


class Layer(nn.Module):
    """A layer with a function behind it, whose result the caller sees (or a sum of it)."""

    def __init__(self, layer, function, is_seen=True):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.function, self.is_seen = layer(), function, is_seen

    def forward(self, x):
        y = self.function(self.layer(x))
        return y if self.is_seen else y.sum(-1)


def example(shape, dtype, *, special=(float("nan"), float("inf"))):
    torch.manual_seed(1)
    x = torch.randn(shape)
    if special:
        x[0, 0], x[-1, 1] = special
    return x.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_seen", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_behind_layers_are_post_ops(layer, function, dtype, is_seen):
    make, shape = LAYERS[layer]
    model = Layer(make, FUNCTIONS[function], is_seen).to(dtype)
    special = (float("nan"), 3.0 if function == "gelu" else float("inf"))
    x = example(shape, dtype, special=special)  # eager's gelu of an infinity depends on strides
    result, fired = frozen(model, x, options={"codegen": "eager"})
    with torch.no_grad():
        compare(result, model(x))
    assert fired["prepack_linear"] + fired["prepack_convolution"] == 1
    loses_nan = layer == "transposed" and function in ("sigmoid", "gelu")
    assert fired["fuse_post_ops"] == (0 if loses_nan else 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("function", LOSES_NAN)
def test_functions_that_lose_a_nan_are_post_ops_on_request(layer, function, dtype):
    make, shape = LAYERS[layer]
    model, x = Layer(make, LOSES_NAN[function]).to(dtype), example(shape, dtype)
    result, fired = frozen(model, x)
    with torch.no_grad():
        compare(result, model(x))
    assert fired["fuse_post_ops"] == 0
    finite = example(shape, dtype, special=())
    options = {"passes": {"fuse_post_ops": {"exact_nan": False}}}
    result, fired = frozen(model, finite, options=options)
    with torch.no_grad():
        compare(result, model(finite))
    assert fired["fuse_post_ops"] == (1 if layer == "linear" else fired["prepack_convolution"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operator", [torch.add, torch.sub, torch.mul])
def test_operators_on_two_convolutions_and_relu(operator, dtype):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))

        def forward(self, x):
            first, second, third = self.layers
            y = first(x).sin()
            scaled = operator(second(y), y.mean((2, 3), keepdim=True))
            return (operator(third(y), y).relu() * scaled.sin()).sum((2, 3))

    model, x = Block().to(dtype), example((2, 4, 5, 6), dtype, special=())
    for exact_nan in (True, False):
        options = {"passes": {"fuse_post_ops": {"exact_nan": exact_nan}}}
        result, fired = frozen(model, x, options=options)
        with torch.no_grad():
            compare(result, model(x))
        assert fired["fuse_post_ops"] == (2 if exact_nan else 3)


@pytest.mark.parametrize(
    ("make", "shape", "packs"),
    [
        (lambda: nn.Conv2d(4, 6, 3), (2, 4, 7, 6), True),
        (lambda: nn.Conv2d(128, 8, 3), (1, 128, 32, 32), True),  # many products
        (lambda: nn.Conv2d(3, 16, 3), (1, 3, 64, 64), False),  # few, for a large copy
        (lambda: nn.Conv2d(4, 8, 3, groups=4, padding=2, dilation=2), (1, 4, 5, 5), True),
        (lambda: nn.Conv3d(2, 4, 2, stride=2), (1, 2, 4, 5, 6), True),
        (lambda: nn.ConvTranspose3d(2, 4, 2, 2, bias=False), (1, 2, 3, 4, 5), True),
        (lambda: nn.Conv1d(4, 6, 3), (2, 4, 9), False),
        (lambda: nn.ConvTranspose2d(4, 6, 1, 1), (2, 4, 5, 5), True),
    ],
)
def test_convolutions_whose_results_are_returned(make, shape, packs):
    model, x = Layer(make, lambda y: y), example(shape, torch.float32)
    result, fired = frozen(model, x)
    with torch.no_grad():
        compare(result, model(x))
    assert fired["prepack_convolution"] == packs


def test_a_convolution_of_any_batch_is_packed():
    model = Layer(LAYERS["conv"][0], F.silu)
    torch._dynamo.reset()
    recorder = Recorder(keep_rewrites=True)
    compiled = torch.compile(
        model, backend=lambda g, i: compile_fx(g, i, {"freezing": True}, recorder), dynamic=True
    )
    with torch.no_grad():
        for sizes in ((2, 4, 6, 5), (7, 4, 11, 9)):
            x = example(sizes, torch.float32)
            compare(compiled(x), model(x))
    fired = {each.id.name: len(each.rewrites) for each in recorder.log.passes()}
    assert (fired["prepack_convolution"], fired["fuse_post_ops"]) == (1, 1)


@pytest.mark.parametrize("settings", [{}, {"num_layers": 2, "bidirectional": True, "bias": False}])
def test_lstms_are_packed(settings):
    torch.manual_seed(0)
    model, x = nn.LSTM(6, 8, **settings).eval(), example((5, 3, 6), torch.float32, special=())
    with torch._dynamo.config.patch(allow_rnn=True):
        (result, states), fired = frozen(model, x)
    with torch.no_grad():
        expected, wanted = model(x)
    compare(result, expected)
    for state, want in zip(states, wanted, strict=True):
        compare(state, want)
    assert fired["prepack_recurrent"] == (4 if settings else 1)


class WeightOnly(nn.Module):
    """A linear with weights of 8-bit integers, its scales at `place`."""

    def __init__(self, place, inputs, dtype):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("weight", torch.randint(-127, 128, (24, inputs), dtype=torch.int8))
        self.register_buffer("scale", (torch.rand(24) / 99).to(dtype))
        self.bias = nn.Parameter(torch.randn(24, dtype=dtype))
        self.place = place

    def forward(self, x):
        weight = self.weight.to(x.dtype)
        if self.place == "weight":
            return F.linear(x, weight * self.scale[:, None], self.bias)
        return F.linear(x, weight) * self.scale + self.bias


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", ["weight", "result"])
@pytest.mark.parametrize(("shape", "fires"), [((1, 48), 1), ((2, 2, 40), 1), ((64, 48), 0)])
def test_weights_of_integers_stay_integers(shape, fires, place, dtype):
    model, x = WeightOnly(place, shape[-1], dtype), example(shape, dtype, special=())
    torch._dynamo.reset()
    recorder = Recorder(keep_rewrites=True)
    compiled = torch.compile(
        model, backend=lambda gm, args: compile_fx(gm, args, {"freezing": True}, recorder)
    )
    with torch.no_grad():
        compare(compiled(x), model(x))
    records = {each.id.name: each for each in recorder.log.passes() if each.id.stage == "frozen"}
    assert len(records["weight_only"].rewrites) == fires
    constants = dict(list(records.values())[-1].after.named_buffers())
    is_kept = any(each.dtype is torch.int8 and each.dim() == 2 for each in constants.values())
    assert is_kept == bool(fires)
    assert not fires or all(
        each.numel() < 24 * shape[-1] or each.dtype is torch.int8 for each in constants.values()
    )
