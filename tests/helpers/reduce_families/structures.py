"""Graphs whose failure needs an exact structure: a diamond, an in-place op, a result of several."""

import operator
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph, GraphModule

from tests.helpers.reduce_families.planted import traced

UNARY = (torch.sin, torch.cos, torch.tanh, torch.sigmoid)

Found = tuple[GraphModule, tuple[object, ...]]


def _rows(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _some(x: Tensor, count: int) -> Tensor:
    """Return a value after so many ops; at every fifth a skip joins."""
    skip = x
    for number in range(count):
        if number % 5 == 4:
            x = skip = torch.add(x, skip)
        else:
            x = UNARY[number % 4](x)
    return x


def skips(size: int, seed: int, culprit: Callable[[Tensor], Tensor] = torch.relu) -> Found:
    """Return a chain with a skip at every tenth node and one culprit, at any size.

    It is made without running it, and its values have 4 elements.
    """
    graph = Graph()
    x = last = skip = graph.placeholder("x")
    guilty = int(torch.randint(size, (), generator=torch.Generator().manual_seed(seed)))
    for number in range(size):
        if number == guilty:
            last = graph.call_function(culprit, (last,))
        elif number % 10 == 9:
            last = skip = graph.call_function(torch.add, (last, skip))
        else:
            last = graph.call_function(UNARY[number % 3], (last,))
    graph.output((last, x))
    return GraphModule(torch.nn.Module(), graph), (torch.linspace(-1, 1, 4),)


def equals(size: int, seed: int, count: int) -> Found:
    """Return a chain with `count` calls of `sin` at random places; the others are no `sin`."""
    generator = torch.Generator().manual_seed(seed)
    places = set(torch.randperm(size, generator=generator)[:count].tolist())

    def run(x: Tensor) -> Tensor:
        for number in range(size):
            x = torch.sin(x) if number in places else UNARY[1 + number % 3](x)
        return x

    x = _rows(seed, 4, 4)
    return traced(run, x), (x,)


def diamond(size: int, seed: int) -> Found:
    """Return a graph where `relu` goes two long ways to `maximum`."""

    def run(x: Tensor) -> Tensor:
        source = torch.relu(_some(x, size // 4))
        left, right = (_some(op(source), size // 8) for op in (torch.sin, torch.cos))
        return _some(torch.maximum(left, right), size // 2)

    x = _rows(seed, 4, 4 + seed)
    return traced(run, x), (x,)


def in_place(size: int, seed: int) -> Found:
    """Return a graph with in-place ops; `gelu` reads what `mul_` has changed."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        base = _some(x, size // 3).clone()
        for number in range(size // 12):
            base.add_(number).sin_()
        base.mul_(2)
        view = base.view(-1)
        view.neg_()
        y = F.gelu(base)
        return _some(y, size // 3), view

    x = _rows(seed, 4, 4 + seed)
    return traced(run, x), (x,)


def results(size: int, seed: int) -> Found:
    """Return a graph that splits and sorts; `gelu` reads the second part of one `split`."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        y = _some(x, size // 4)
        for number in range(max(1, size // 16)):
            values, indices = torch.topk(y, 4, -1)
            y = torch.gather(torch.cat([values, values], -1), -1, torch.cat([indices, indices], -1))
            y = UNARY[number % 4](y)
        parts = torch.split(_some(y, size // 8), 4, -1)
        left, right = operator.getitem(parts, 0), operator.getitem(parts, 1)
        return _some(torch.add(left, F.gelu(right)), size // 4), torch.topk(left, 2)[0]

    x = _rows(seed, 3 + seed, 8)
    return traced(run, x), (x,)


def inside_cond(size: int, seed: int) -> Found:
    """Return a graph that calls `torch.cond`; in the true branch stands `relu`."""
    half = max(2, size // 4)

    def branch(x: Tensor, culprit: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        x = _some(x, half)
        for op in culprit:
            x = op(x)
        return _some(x, half // 2)

    x = _rows(seed, 4, 4 + seed)
    root = torch.nn.Module()
    root.true = traced(lambda x: branch(x, (torch.relu,)), x)
    root.false = traced(lambda x: branch(x, ()), x)
    graph = Graph()
    p, value = graph.placeholder("p"), graph.placeholder("x")
    for number in range(half // 2):
        value = graph.call_function(UNARY[number % 4], (value,))
    branches = [graph.get_attr(name) for name in ("true", "false")]
    call = graph.call_function(torch.ops.higher_order.cond, (p, *branches, (value,)))
    last = graph.call_function(operator.getitem, (call, 0))
    for number in range(half // 2):
        last = graph.call_function(UNARY[number % 4], (last,))
    graph.output((last,))
    return GraphModule(root, graph), (torch.tensor(True), x)
