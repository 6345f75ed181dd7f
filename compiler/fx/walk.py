"""Walk a graph: its inputs, outputs, nodes by name, attributes and sub-graphs.

Sub-graphs come level by level, as nodes refer to them (`get_attr`, `call_module`). A child that no
node refers to is never listed.
"""

import functools
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from itertools import chain, count
from typing import TypeVar

from torch.fx import Graph, GraphModule, Node

CALLS = frozenset({"call_function", "call_method", "call_module"})
"""The ops of nodes that compute a value."""

ATTRIBUTES = frozenset({"get_attr", "call_module"})
"""The ops of nodes whose target is an attribute of the module."""

Swaps = Mapping[GraphModule, GraphModule]
"""Graphs to visit instead of sub-graphs: Inductor works on a copy before it installs it."""

NO_SWAPS: Swaps = {}

T = TypeVar("T", bound=Hashable)


def placeholders(gm: GraphModule) -> list[Node]:
    """Return the inputs of a graph, in order."""
    return list(gm.graph.find_nodes(op="placeholder"))


def input_names(gm: GraphModule) -> list[str]:
    """Return the names of the inputs of a graph, in order."""
    return [node.name for node in placeholders(gm)]


def output_leaves(gm: GraphModule) -> list[object]:
    """Return the outputs of a graph, flattened: nodes and constants."""
    return flat(gm.graph.output_node().args[0])


def flat(argument: object) -> list[object]:
    """Return the leaves of nested lists, tuples and dicts (and FX's own) in order."""
    if isinstance(argument, (tuple, list)):
        return [leaf for item in argument for leaf in flat(item)]
    if isinstance(argument, dict):
        return [leaf for item in argument.values() for leaf in flat(item)]
    return [argument]


def by_name(gm: GraphModule) -> dict[str, Node]:
    """Return the nodes of a graph by name."""
    return {node.name: node for node in gm.graph.nodes}


def attribute_targets(graph: Graph) -> list[str]:
    """Return the attributes that nodes read or call (`block.weight`), each once, in order."""
    return list(dict.fromkeys(str(n.target) for n in graph.nodes if n.op in ATTRIBUTES))


def fetch(gm: object, target: object) -> object:
    """Return the attribute of a module at a dotted target, or raise `AttributeError`."""
    return functools.reduce(getattr, str(target).split("."), gm)


def attributes(gm: GraphModule) -> dict[str, object]:
    """Return the attributes that nodes read or call, by target; None for a removed one."""
    found: dict[str, object] = {}
    for target in attribute_targets(gm.graph):
        parts = target.split(".")
        found[target] = functools.reduce(lambda o, part: getattr(o, part, None), parts, gm)
    return found


def children(gm: GraphModule, swaps: Swaps = NO_SWAPS) -> dict[str, GraphModule]:
    """Return the sub-graphs of a graph's nodes by target, in order of first use."""
    found = attributes(gm).items()
    return {t: swaps.get(child, child) for t, child in found if isinstance(child, GraphModule)}


def graphs_by_path(gm: GraphModule, swaps: Swaps = NO_SWAPS) -> dict[str, GraphModule]:
    """Return the graphs of a module by path (`cond_true_0.inner`), each before its sub-graphs.

    The path of the module itself is `""`. A sub-graph that two nodes name differently is listed
    under both names.
    """
    return dict(_walk("", gm, swaps))


def _walk(path: str, gm: GraphModule, swaps: Swaps) -> Iterator[tuple[str, GraphModule]]:
    yield path, gm
    for target, child in children(gm, swaps).items():
        yield from _walk(f"{path}.{target}" if path else target, child, swaps)


def contains(gm: GraphModule, wanted: GraphModule, swaps: Swaps = NO_SWAPS) -> bool:
    """Return whether `wanted` is one of the graphs of a module."""
    return any(graph is wanted for graph in graphs_by_path(gm, swaps).values())


def distinct_graphs(gm: GraphModule) -> list[GraphModule]:
    """Return the graphs of a module, each object once: the sub-graphs of a graph before itself."""
    found: dict[GraphModule, None] = {}
    for child in children(gm).values():
        found |= dict.fromkeys(distinct_graphs(child))
    return [*(found | {gm: None})]


def free_name(name: str, base: str, taken: Container[str]) -> str:
    """Return `name`, or else the first of `base`, `base_1`, `base_2`, ... that is not taken."""
    others = (f"{base}_{number}" for number in count(1))
    return next(each for each in chain((name, base), others) if each not in taken)


def topological(items: Sequence[T], operands: Callable[[T], Iterable[T]]) -> list[T]:
    """Return items so that each comes after its operands; else they keep the order given.

    Example: `[b, a, c]` where `b` reads `a` gives `[a, b, c]`.

    Raises:
        graphlib.CycleError: Some items read each other.
    """
    rank = {item: place for place, item in enumerate(items)}
    reads = {item: [o for o in operands(item) if o in rank] for item in items}
    if all(rank[o] < rank[item] for item in items for o in reads[item]):
        return list(items)
    sorter = TopologicalSorter(reads)
    sorter.prepare()
    ready: list[int] = []
    done: list[T] = []
    while sorter.is_active():
        for item in sorter.get_ready():
            heappush(ready, rank[item])
        done.append(items[heappop(ready)])
        sorter.done(done[-1])
    return done
