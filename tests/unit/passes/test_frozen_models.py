"""The passes of frozen graphs for layouts and oneDNN inside models, against eager."""

import pytest
import torch
from torch import nn

from ctk.compiler.pipeline import compile_fx
from ctk.compiler.torch_compat.inductor import onednn
from ctk.toolkit.compile_log.recorder import Recorder
from tests.unit.passes.test_in_models import TOKENS, Encoder, ResNet, compare, fired, settled


class Tower(nn.Module):
    """Convolutions of all kinds, whose results and parts of them the caller sees."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, dilation=2), nn.BatchNorm2d(8))
        self.deep, self.norm = nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.GroupNorm(2, 8)
        self.up, self.volume = nn.ConvTranspose2d(8, 6, 3), nn.Conv3d(1, 2, 3)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        y = self.stem(x).relu()
        z = nn.functional.avg_pool2d(self.norm(self.deep(y)) + y, 2)
        z = nn.functional.interpolate(self.up(z), scale_factor=2)
        volume = self.volume(x.unsqueeze(1).expand(-1, -1, 3, -1, -1))
        return self.head(z.mean((2, 3))), y, z.flatten(2).transpose(1, 2), volume.amax(2)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("batch", "freezing"), [(0, True), (1, True), (2, True), (2, False)])
def test_to_channels_last_in_a_tower(layout, batch, freezing):
    model, x = settled(Tower()), torch.randn(batch, 3, 16, 16).contiguous(memory_format=layout)
    made = fired(model, x, step="to_channels_last", freezing=freezing)
    assert made == (1 if batch else 0) or layout is torch.channels_last


def test_folding_goes_on_behind_what_was_folded():
    torch.manual_seed(0)
    model = settled(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))).eval()

    def program(x):
        return (model(x) * 2 - model[1].weight.view(4, 1, 1)) / 3 + 1

    torch._dynamo.reset()
    recorder = Recorder()
    compiled = torch.compile(
        program, backend=lambda g, i: compile_fx(g, i, {"freezing": True}, recorder)
    )
    x = torch.randn(2, 3, 4, 4)
    with torch.no_grad():
        compare(compiled(x), program(x), "fold_binary")
    last = recorder.log.passes()[-1].after.graph
    calls = [node.target for node in last.nodes if node.op == "call_function"]
    assert calls == [onednn.convolution(), torch.ops.aten.clone.default]


class Perceptron(nn.Module):
    """Layers with an operator behind each: on tokens and on images."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linears = nn.ModuleList(nn.Linear(8, 8, bias=n % 2 == 0) for n in range(6))
        self.convolutions = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for n in range(4))

    def forward(self, x, image):
        a, b, c, d, e, f = self.linears
        y = nn.functional.gelu(b(nn.functional.silu(a(x)))) - d(c(x.sin()).sigmoid()).tanh()
        y = x * f(e(y) - x)
        first, second, third, fourth = self.convolutions
        z = nn.functional.leaky_relu(second(nn.functional.silu(first(image))), 0.2)
        return y, (fourth(third(z) - z) * image).mean((2, 3))


PERCEPTRON = Perceptron()
IMAGES = torch.randn(2, 4, 6, 6)


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_prepack_linear_in_a_perceptron(dynamic):
    made = fired(PERCEPTRON, TOKENS, IMAGES, step="prepack_linear", freezing=True, dynamic=dynamic)
    assert made == 12
    assert fired(PERCEPTRON, TOKENS, IMAGES, step="prepack_linear") == 0


@pytest.mark.slow
def test_prepack_convolution_in_a_perceptron():
    options = {"freezing": True}
    assert fired(PERCEPTRON, TOKENS, IMAGES, step="prepack_convolution", **options) == 4
    assert fired(settled(ResNet()), SMALL, step="prepack_convolution", **options) == 8
    assert fired(settled(ResNet()), SMALL, step="fuse_post_ops", **options) == 3


SMALL = torch.randn(2, 3, 12, 12)


def test_fuse_post_ops_keeps_what_is_not_a_number():
    tokens, images = TOKENS.clone(), IMAGES.clone()
    tokens[0, 0, 0], tokens[1, 1, 1], tokens[0, 1] = float("nan"), float("inf"), -0.0
    images[0, 0, 0, 0], images[1, 1] = float("nan"), float("-inf")
    assert fired(PERCEPTRON, tokens, images, step="fuse_post_ops", freezing=True) >= 8


def test_prepack_linear_in_an_encoder():
    apart = {"freezing": True, "disable": ("fuse_attention",)}
    assert fired(Encoder(), TOKENS, step="prepack_linear", **apart) >= 7
    assert fired(Encoder(), TOKENS, step="fuse_post_ops", **apart) >= 3


def test_packed_weights_are_no_part_of_the_graph():
    torch._dynamo.reset()
    recorder = Recorder()
    compiled = torch.compile(
        Encoder().eval(), backend=lambda g, i: compile_fx(g, i, {"freezing": True}, recorder)
    )
    with torch.no_grad():
        compiled(TOKENS)
    frozen = recorder.log.passes()[-1].after
    targets = [str(n.target) for n in frozen.graph.nodes if n.op == "get_attr"]
    assert all(frozen.get_buffer(target).layout == torch.strided for target in targets)
    assert {record.id.codegen for record in recorder.log.kernels()} == {"c"}
