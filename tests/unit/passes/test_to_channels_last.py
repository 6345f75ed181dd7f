"""Convolutions with channels last in training: gradients, copies of weights, and the option."""

import pytest
import torch
from torch import nn

from ctk.compiler.passes.joint.to_channels_last import ToChannelsLast
from tests.helpers.passes import aten_graph, run_pass
from tests.unit.passes.test_in_models import fired

aten = torch.ops.aten
IMAGE = torch.randn(2, 3, 12, 12)
IN_TRAINING = {"to_channels_last": {"training": True}}


class Pyramid(nn.Module):
    """Weights of nine pixels and of one, a pool, and a mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second, self.norm = nn.Conv2d(8, 16, width, bias=False), nn.BatchNorm2d(16)
        self.third = nn.Conv2d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.second(self.first(x).relu())).relu()
        return self.third(nn.functional.max_pool2d(y, 2)).mean((2, 3))


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("batch", [1, 2])
def test_gradients_keep_their_strides(width: int, batch: int) -> None:
    given = IMAGE[:batch].requires_grad_(batch == 2)
    made = fired(Pyramid(width), given, step="to_channels_last", train=True, passes=IN_TRAINING)
    assert made == 1


def test_training_is_an_option() -> None:
    assert fired(Pyramid(1), IMAGE, step="to_channels_last", train=True) == 0


def convolve(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return aten.convolution(x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)


def gradients(x: torch.Tensor, wide: torch.Tensor, narrow: torch.Tensor) -> list[torch.Tensor]:
    y = convolve(x, wide)
    results = convolve(y, narrow).relu()
    settings = ([0], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
    of_y, of_narrow, _ = aten.convolution_backward(results.exp(), y, narrow, *settings)
    _, of_wide, _ = aten.convolution_backward(of_y, x, wide, *settings)
    return [results.sum(), of_narrow, of_wide]


def test_only_a_weight_of_many_pixels_is_copied() -> None:
    operands = (IMAGE, torch.randn(8, 3, 3, 3), torch.randn(4, 8, 1, 1))
    gm = aten_graph(gradients, *operands)
    run_pass(gm, ToChannelsLast(training=True), stage="joint")
    targets = [node.target for node in gm.graph.nodes if node.op == "call_function"]
    assert targets.count(aten.clone.default) == 3  # of the wide weight, twice, and its gradient
    assert targets.count(aten.as_strided.default) == 1  # the gradient of the narrow one
    for mine, eager in zip(gm(*operands), gradients(*operands), strict=True):
        assert mine.stride() == eager.stride()
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-4)
