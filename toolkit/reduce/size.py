"""The order on cases: what "smaller" means, so that the result is the same on every path."""

from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

from ctk.toolkit.case.case import Case
from ctk.toolkit.formats.buildable import filling_of
from ctk.toolkit.reduce.analysis import CALLS, output_leaves, placeholders
from ctk.toolkit.reduce.rebuild import fetch

Size = tuple[int, ...]


def size_of(case: Case) -> Size:
    """Return the size of a case without its values; sizes compare as tuples do.

    In order: call nodes (sub-graphs included), sub-graphs, results, inputs, symbolic sizes,
    elements of all inputs, other nodes (constants).
    """
    graphs = list(_graphs(case.graph))
    nodes = [node for graph in graphs for node in graph.graph.nodes]
    return (
        sum(node.op in CALLS for node in nodes),
        len(graphs),
        len(output_leaves(case.graph)),
        len(placeholders(case.graph)),
        sum(size is not None for sizes in case.dynamic.values() for size in sizes),
        sum(value.numel() for value in case.inputs if isinstance(value, torch.Tensor)),
        len(nodes),
    )


def is_smaller(case: Case, other: Case) -> bool:
    """Return whether a case comes before another: by size, then by how simple its values are."""
    size, other_size = size_of(case), size_of(other)
    return _fillings(case) < _fillings(other) if size == other_size else size < other_size


def _fillings(case: Case) -> tuple[int, ...]:
    """Return how far the values are from what a script can build: the sum, then input by input."""
    each = [filling_of(value) for value in case.inputs]
    return (sum(each), *each)


def call_nodes(case: Case) -> int:
    """Return the number of call nodes, those in sub-graphs included."""
    return size_of_graph(case.graph)


def size_of_graph(gm: GraphModule) -> int:
    """Return the number of call nodes of a graph and its sub-graphs."""
    return sum(node.op in CALLS for graph in _graphs(gm) for node in graph.graph.nodes)


def _graphs(gm: GraphModule) -> Iterator[GraphModule]:
    """Yield a graph and its sub-graphs, each once per target."""
    yield gm
    for target in dict.fromkeys(_targets(gm)):
        found = fetch(gm, target)
        if isinstance(found, GraphModule):
            yield from _graphs(found)


def _targets(gm: GraphModule) -> Iterator[str]:
    for node in gm.graph.nodes:
        if isinstance(node, Node) and node.op in ("get_attr", "call_module"):
            yield str(node.target)
