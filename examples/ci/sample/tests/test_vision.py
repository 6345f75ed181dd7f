"""Models of torchvision, with random weights."""

import pytest
import torch
from netlib import backends

models = pytest.importorskip(
    "torchvision.models",
    reason="torchvision is not installed, or was built for another torch",
    exc_type=(ImportError, RuntimeError),
)


def test_squeezenet():
    model = models.squeezenet1_1(num_classes=4).eval()
    with torch.no_grad():
        assert torch.compile(model, backend="aot_eager")(torch.randn(1, 3, 64, 64)).shape == (1, 4)


def test_shufflenet():
    model = models.shufflenet_v2_x0_5(num_classes=4).eval()
    compiled = torch.compile(model, backend=backends.half_products)
    with torch.no_grad():
        assert compiled(torch.randn(1, 3, 64, 64)).shape == (1, 4)
