import unittest

import torch
from netlib import backends
from netlib.models import classifier, normalized


def step(model, compiled):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = compiled(torch.randn(8, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def test_loss_falls():
    model = classifier()
    compiled = torch.compile(model, backend="aot_eager")
    torch.manual_seed(1)
    first = step(model, compiled)
    torch.manual_seed(1)
    assert step(model, compiled) < first


def test_step_of_a_classifier():
    model = classifier()
    assert step(model, torch.compile(model, backend=backends.low_memory_relu)) > 0


def test_statistics_in_evaluation():
    model = normalized().eval()
    compiled = torch.compile(model, backend=backends.frozen_statistics)
    assert (compiled(torch.randn(4, 8)) >= 0).all()


def test_statistics_in_training():
    model = normalized().train()
    torch.compile(model, backend=backends.frozen_statistics)(torch.randn(4, 8))


class TestPlain(unittest.TestCase):
    def test_forward(self):
        compiled = torch.compile(torch.nn.functional.relu, backend=backends.plain)
        self.assertTrue(bool((compiled(torch.randn(4)) >= 0).all()))

    def test_backward(self):
        x = torch.randn(4, requires_grad=True)
        torch.compile(torch.sin, backend=backends.plain)(x).sum().backward()
        self.assertTrue(torch.allclose(x.grad, x.detach().cos()))
