"""A problem for a reducer: a graph with inputs, a predicate, and what is known of its minimum."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Proxy
from torch.fx.node import map_aggregate
from torch.fx.proxy import GraphAppendingTracer

from tests.helpers.reduce_families.predicates import Predicate


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least that still fails; None: not known, or not asked for.

    Attributes:
        nodes: Call nodes, sub-graphs included.
        elements: Elements of all inputs together.
        non_zeros: Input elements that are not zero.
    """

    nodes: int
    elements: int | None = None
    non_zeros: int | None = None


@dataclass(frozen=True, slots=True)
class Planted:
    """A failure of known size.

    Attributes:
        graph: Where it hides.
        inputs: One value per placeholder.
        fails: Whether a graph with inputs still fails.
        optimum: The least that does.
        questions: How many a good reducer needs at most.
    """

    graph: GraphModule
    inputs: tuple[object, ...]
    fails: Predicate
    optimum: Optimum
    questions: int


@dataclass(frozen=True, slots=True)
class Family:
    """Problems of one kind, by size and seed.

    Attributes:
        build: Makes the problem of about `size` call nodes; the same seed gives the same one.
        sizes: What the benchmark asks for, smallest first.
        small: A size at which every edit can be tried.
    """

    build: Callable[[int, int], Planted]
    sizes: tuple[int, ...]
    small: int


def traced(function: Callable[..., object], *inputs: object) -> GraphModule:
    """Return the graph of a function's calls, as they are written: dead ones stay."""
    graph = Graph()
    tracer = GraphAppendingTracer(graph)
    nodes = [graph.placeholder(f"x{number}") for number in range(len(inputs))]
    proxies = [Proxy(node, tracer) for node in nodes]
    result = map_aggregate(function(*proxies), lambda v: v.node if isinstance(v, Proxy) else v)
    graph.output(result if isinstance(result, tuple) else (result,))
    graph.lint()
    return GraphModule(torch.nn.Module(), graph)
