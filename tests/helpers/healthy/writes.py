"""In-place writes, views, aliases, and Python state that a call changes."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tests.helpers.healthy.base import Call, Healthy


def writes_an_argument() -> Call:
    def run(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        x[1:].mul_(2)
        return x.sum() + y.sin().sum()

    return run, (torch.randn(4), torch.randn(4))


def returns_views() -> Call:
    return lambda x: (x, x[1:], x.T, x.view(-1), x.detach()), (torch.randn(3, 4),)


def aliased_arguments() -> Call:
    base = torch.randn(6)

    def run(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        return b + 1

    return run, (base[:4], base[2:])


def strided_window() -> Call:
    def run(x: Tensor) -> Tensor:
        window = x.as_strided((3, 4), (2, 1))
        return window.sum(1) + x[:3]

    return run, (torch.randn(10),)


def strided_write() -> Call:
    def run(x: Tensor) -> Tensor:
        y = x.clone()
        y.as_strided((2, 2), (3, 1), 1).add_(5)
        return y

    return run, (torch.randn(8),)


def scattered() -> Call:
    def run(x: Tensor, at: Tensor, values: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[at] = values
        y.index_put_((at,), values, accumulate=True)
        return y.scatter_add(0, at, values)

    return run, (torch.zeros(8), torch.tensor([1, 3, 6]), torch.randn(3))


class Counting(nn.Module):
    """Counts its calls in a buffer and remembers sizes in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.sizes: list[int] = []
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        self.sizes.append(x.shape[0])
        self.last = x.mean()
        return x * self.calls


def counting() -> Call:
    return Counting(), (torch.randn(3, 2),)


class Pair(NamedTuple):
    mean: Tensor
    parts: dict[str, Tensor]


def structured_results() -> Call:
    return lambda x: Pair(x.mean(), {"b": x + 1, "a": x * 2}), (torch.randn(3),)


def key_value_cache() -> Call:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 8, 4))

        def forward(self, x: Tensor, at: Tensor) -> Tensor:
            self.keys.index_copy_(1, at, x)
            return (x @ self.keys.mT).softmax(-1) @ self.keys

    return Decoder(), (torch.randn(1, 1, 4), torch.tensor([2]))


def graph_breaks() -> Call:
    def run(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos() * x

    return run, (torch.randn(4),)


def writes_through_view_of_view() -> Call:
    def run(x: Tensor) -> Tensor:
        inner = x.view(2, 6)[1].reshape(2, 3).t()
        inner.mul_(-1)
        return x + inner.sum()

    return run, (torch.randn(12),)


PROGRAMS = (
    Healthy("writes_an_argument", writes_an_argument),
    Healthy("returns_views", returns_views),
    Healthy("aliased_arguments", aliased_arguments),
    Healthy("strided_window", strided_window),
    Healthy("strided_write", strided_write),
    Healthy("scattered", scattered),
    Healthy("counting", counting),
    Healthy("structured_results", structured_results),
    Healthy("key_value_cache", key_value_cache),
    Healthy("graph_breaks", graph_breaks),
    Healthy("writes_through_view_of_view", writes_through_view_of_view),
)
