"""Graphs whose failure needs an exact structure: a diamond, an in-place op, a result of several."""

import operator
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph, GraphModule, Proxy
from torch.fx.proxy import GraphAppendingTracer

from tests.helpers.reduce_families.planted import traced

UNARY = (torch.sin, torch.cos, torch.tanh, torch.sigmoid)

Found = tuple[GraphModule, tuple[object, ...]]


class Builder:
    """Random filling between the parts of a structure.

    Attributes:
        random: What a seed decides: sizes of the parts, ops, skips.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.random = size, seed, random.Random(seed)

    def input(self, *shape: int) -> Tensor:
        """Return normal values."""
        return torch.randn(*shape, generator=torch.Generator().manual_seed(self.seed))

    def parts(self, *weights: float) -> list[int]:
        """Return how many nodes each part gets, about so much of all."""
        shares = [weight * self.random.uniform(0.5, 1.5) for weight in weights]
        return [max(1, round(self.size * share / sum(shares))) for share in shares]

    def some(self, x: Tensor, count: int) -> Tensor:
        """Return a value after so many ops, some of which read an earlier value too."""
        skip = x
        for number in range(count):
            if number % 5 == 4:
                x = self.random.choice((torch.add, torch.mul, torch.maximum))(x, skip)
                skip = x
            else:
                x = self.random.choice(UNARY)(x)
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

    x = torch.randn(4, 4, generator=generator)
    return traced(run, x), (x,)


def diamond(size: int, seed: int) -> Found:
    """Return a graph where `relu` goes two ways to `minimum`, in which other values join."""
    make = Builder(size, seed)
    before, left, right, after = make.parts(1, 0.5, 0.5, 1)

    def run(x: Tensor) -> Tensor:
        source = torch.relu(make.some(x, before))
        arms = (make.some(torch.sin(source), left), make.some(torch.cos(source), right))
        return make.some(torch.minimum(*arms), after)

    x = make.input(4, 4 + seed)
    return traced(run, x), (x,)


def in_place(size: int, seed: int) -> Found:
    """Return a graph with in-place ops; `gelu` reads what `mul_` has changed."""
    make = Builder(size, seed)
    before, inside, after = make.parts(1, 1, 1)

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        base = make.some(x, before).clone()
        guilty = make.random.randrange(1 + inside // 4)
        for number in range(1 + inside // 4):
            base.add_(number).sin_()
            if number == guilty:
                base.mul_(2)
        view = base.view(-1)
        view.neg_()
        return make.some(F.gelu(base), after), view

    x = make.input(4, 4 + seed)
    return traced(run, x), (x,)


def results(size: int, seed: int) -> Found:
    """Return a graph that splits and sorts; `gelu` reads the second part of one `split`."""
    make = Builder(size, seed)
    before, inside, between, after = make.parts(1, 1, 0.5, 1)

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        y = make.some(x, before)
        for _ in range(1 + inside // 6):
            values, indices = torch.topk(y, 4, -1)
            y = torch.gather(torch.cat([values, values], -1), -1, torch.cat([indices, indices], -1))
            y = make.random.choice(UNARY)(y)
        parts = torch.split(make.some(y, between), 4, -1)
        left, right = operator.getitem(parts, 0), operator.getitem(parts, 1)
        return make.some(torch.add(left, F.gelu(right)), after), torch.topk(left, 2)[0]

    x = make.input(3 + seed, 8)
    return traced(run, x), (x,)


def inside_cond(size: int, seed: int) -> Found:
    """Return a graph that calls `torch.cond`; in one of the branches stands `relu`."""
    make = Builder(size, seed)
    before, first, second, other, after = make.parts(1, 0.5, 0.5, 1, 1)
    x = make.input(4, 4 + seed)
    guilty = traced(lambda x: make.some(torch.relu(make.some(x, first)), second), x)
    innocent = traced(lambda x: make.some(x, other), x)
    root = torch.nn.Module()
    root.true, root.false = (guilty, innocent) if seed % 2 == 0 else (innocent, guilty)
    graph = Graph()
    p, tracer = graph.placeholder("p"), GraphAppendingTracer(graph)
    value = make.some(Proxy(graph.placeholder("x"), tracer), before).node
    branches = [graph.get_attr(name) for name in ("true", "false")]
    call = graph.call_function(torch.ops.higher_order.cond, (p, *branches, (value,)))
    last = graph.call_function(operator.getitem, (call, 0))
    graph.output((make.some(Proxy(last, tracer), after).node,))
    return GraphModule(root, graph), (torch.tensor(seed % 3 > 0), x)
