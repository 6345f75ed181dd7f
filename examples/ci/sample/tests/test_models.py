import pytest
import torch
from netlib import backends, passes
from netlib.models import Attention, Gated, Residual, classifier

FOLD = {"custom_passes": {"joint": [passes.fold_scale]}}


def agrees(model, compiled, *args):
    with torch.no_grad():
        return torch.allclose(compiled(*args), model(*args), atol=1e-6)


def test_classifier_with_ctk():
    model = classifier().eval()
    assert agrees(model, torch.compile(model, backend="ctk"), torch.randn(4, 8))


def test_attention():
    model = Attention(8, 2).eval()
    assert agrees(model, torch.compile(model, backend=backends.plain), torch.randn(2, 5, 8))


def test_residual():
    model = Residual(8).eval()
    compiled = torch.compile(model, backend="ctk", options=FOLD)
    assert agrees(model, compiled, torch.randn(4, 8))


def test_swapped_residual():
    model = Residual(8, swapped=True).eval()
    compiled = torch.compile(model, backend="ctk", options=FOLD)
    assert agrees(model, compiled, torch.randn(4, 8))


def test_gate():
    model = Gated(8).eval()
    assert agrees(model, torch.compile(model, backend=backends.plain), torch.randn(4, 8))


@pytest.fixture(scope="class")
def serve():
    torch.manual_seed(0)
    model = classifier().eval()
    return torch.no_grad()(torch.compile(model, backend=backends.remember_results))


class TestServing:
    """One compiled model serves several requests."""

    def test_first_request(self, serve):
        assert serve(torch.ones(2, 8)).shape == (2, 3)

    def test_second_request(self, serve):
        assert serve(torch.zeros(2, 8)).shape == (2, 3)

    def test_first_request_again(self, serve):
        assert serve(torch.ones(2, 8)).shape == (2, 3)
