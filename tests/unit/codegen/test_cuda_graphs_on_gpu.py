"""CUDA graphs on a real device: values of eager over many calls, random numbers, failures."""

import logging
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

from ctk.compiler.torch_compat.gpu.cuda_graphs import CudaDevice

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


def compiled(function: Callable[..., Any], *, cuda_graphs: bool = True) -> Callable[..., Any]:
    torch._dynamo.reset()
    counters["ctk"].clear()
    passes = {"kernels": {"cuda_graphs": cuda_graphs}}
    given = {"codegen": "triton", "fallback": (), "passes": passes}
    return torch.compile(function, backend="ctk", options=given)


def assert_recorded() -> None:
    assert counters["ctk"]["CUDA graph: recorded"] >= 1
    assert set(counters["ctk"]) == {"CUDA graph: recorded"}


def draw(*size: int) -> Tensor:
    return torch.randn(*size, device="cuda")


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).cuda()


def convolutions() -> nn.Module:
    """Without biases, whose gradients before a batch norm are rounding, which Adam makes large."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 4, 3, bias=False),
        nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 5),
    ).cuda()  # fmt: skip


def test_inference_while_earlier_results_are_held() -> None:
    model = perceptron().eval()
    run = compiled(model)
    inputs = [draw(16, 32) for _ in range(9)]
    with torch.no_grad():
        held = [run(x) for x in inputs]
        for x, result in zip(inputs, held, strict=True):
            torch.testing.assert_close(result, model(x), rtol=1e-3, atol=1e-4)
    assert_recorded()


@pytest.mark.parametrize("make", [perceptron, convolutions])
def test_training(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = make()
    expected = deepcopy(model)
    run = compiled(model)
    size = (16, 32) if make is perceptron else (4, 3, 8, 8)
    losses: list[Tensor] = []
    for each, train in ((model, run), (expected, expected)):
        optimizer = torch.optim.AdamW(each.parameters(), lr=1e-3)
        torch.manual_seed(1)
        for _ in range(8):
            optimizer.zero_grad()
            loss = train(draw(*size)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    torch.testing.assert_close(losses[:8], losses[8:], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(model.state_dict(), expected.state_dict(), rtol=1e-2, atol=1e-3)
    assert_recorded()


def test_two_forwards_before_their_backwards_and_gradients_that_add_up() -> None:
    model = perceptron()
    expected = deepcopy(model)
    run = compiled(model)
    for _ in range(5):
        inputs = [draw(16, 32) for _ in range(3)]
        for train in (run, expected):
            for loss in [train(x).square().mean() for x in inputs]:
                loss.backward()
    for mine, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, wanted.grad, rtol=1e-3, atol=1e-4)
    assert_recorded()


def test_random_numbers_are_those_without_graphs() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.dropout(x, 0.5) + 1, torch.rand_like(x)

    x = draw(64, 64)
    found: list[list[tuple[Tensor, Tensor]]] = []
    for cuda_graphs in (False, True):
        run = compiled(program, cuda_graphs=cuda_graphs)
        torch.manual_seed(3)
        found.append([run(x) for _ in range(6)])
        if cuda_graphs:
            assert_recorded()
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    assert not torch.equal(found[1][4][1], found[1][5][1])


def test_parameters_in_other_memory() -> None:
    model = perceptron().eval()
    run = compiled(model)
    x = draw(16, 32)
    with torch.no_grad():
        for turn in range(6):
            if turn % 2:
                for each in model.parameters():
                    each.data = torch.randn_like(each)
            torch.testing.assert_close(run(x), model(x), rtol=1e-3, atol=1e-4)


def test_written_inputs() -> None:
    def program(x: Tensor, count: Tensor) -> Tensor:
        count.add_(1)
        return x * count

    run = compiled(program)
    counts = [torch.zeros(8, device="cuda") for _ in range(3)]
    for turn in range(1, 5):
        for count in counts:
            x = draw(8)
            torch.testing.assert_close(run(x, count), x * turn)


def test_what_is_refused_is_said_and_runs(caplog: pytest.LogCaptureFixture) -> None:
    run = compiled(lambda x: torch.linalg.inv(x + 4 * torch.eye(4, device="cuda")) * 2)
    with caplog.at_level(logging.WARNING, logger="ctk.codegen"):
        for _ in range(4):
            x = draw(4, 4)
            expected = torch.linalg.inv(x + 4 * torch.eye(4, device="cuda")) * 2
            torch.testing.assert_close(run(x), expected)
    assert "no CUDA graph: linalg_inv_ex: it waits for the device" in caplog.text


def test_other_streams() -> None:
    run = compiled(lambda x: (x * 2).softmax(-1))
    for _ in range(6):
        with torch.cuda.stream(torch.cuda.Stream()):
            x = draw(64, 64)
            torch.testing.assert_close(run(x), (x * 2).softmax(-1))
            torch.cuda.synchronize()
    assert_recorded()


def test_a_failed_capture_leaves_the_device_as_it_was() -> None:
    device = CudaDevice(0)
    x = draw(8)
    torch.manual_seed(5)
    wanted = torch.rand(4, device="cuda")
    torch.manual_seed(5)
    with pytest.raises(RuntimeError):
        device.capture(lambda: [(x + torch.rand(8, device="cuda")).sum().item()])
    assert not torch.cuda.is_current_stream_capturing()
    torch.testing.assert_close(torch.rand(4, device="cuda"), wanted)
    torch.testing.assert_close((x * 2).cpu(), x.cpu() * 2)
    (result,), replay = device.capture(lambda: [x * 3])
    replay()
    torch.testing.assert_close(result, x * 3)
