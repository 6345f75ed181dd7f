"""Copy a graph: its nodes and sub-graphs are new, its tensors and modules are shared."""

import copy
import gc
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.walk import NO_SWAPS, Swaps, attributes, children, topological
from ctk.compiler.torch_compat.fx import graphs


class Definition(NamedTuple):
    """A node and its definition at one moment. A tuple, because each snapshot has one per node."""

    node: Node
    op: str
    name: str
    target: Any
    args: Any
    kwargs: Any


def copy_node(graph: Graph, node: Node, argument: Callable[[Node], Any]) -> Node:
    """Append a copy of a node to a graph: same name, same type, `meta` copied shallowly.

    FX renames a node with a name of a builtin (`sum`, `input`) or of an erased node. The name is
    restored, because observers, manifests and vetoes refer to it.
    """
    return _append(graph, _definition(node), argument)


def _append(graph: Graph, old: Definition, argument: Callable[[Node], Any]) -> Node:
    args, kwargs = map_arg(old.args, argument), map_arg(old.kwargs, argument)
    new = graph.create_node(old.op, old.target, args, kwargs, old.name, old.node.type)
    new.meta = copy.copy(old.node.meta)
    if new.name != old.name:
        new.name = old.name
    return new


def _definition(node: Node) -> Definition:
    return Definition(node, node.op, node.name, node.target, node.args, dict(node.kwargs))


def _reads(old: Definition) -> list[Node]:
    nodes: list[Node] = []
    map_arg((old.args, old.kwargs), nodes.append)
    return nodes


def copy_graph(graph: Graph) -> Graph:
    """Return a copy of a graph with the same node names and the same calling convention."""
    return _build([_definition(node) for node in graph.nodes], graph)


def _build(definitions: list[Definition], like: Graph) -> Graph:
    graph = Graph()
    made: dict[Node, Node] = {}
    for old in definitions:
        made[old.node] = _append(graph, old, made.__getitem__)
    graphs.copy_codegen(like, graph)
    return graph


def copy_graph_module(
    gm: GraphModule,
    *,
    lazy: bool = False,
    swaps: Swaps = NO_SWAPS,
    copier: Callable[[Graph], Graph] = copy_graph,
) -> GraphModule:
    """Return a copy whose graph may be changed without any effect on `gm`.

    1. Nodes keep their names, types and, copied shallowly, their `meta`.
    2. Sub-graphs (`walk`) are copied, each object once.
    3. Tensors, parameters and other modules are shared.

    Args:
        lazy: Generate the Python code at the first call. Three times faster, for a copy that is
            stored or interpreted; TorchScript cannot script it.
    """
    done: dict[GraphModule, GraphModule] = {}

    def copy_value(value: object) -> object:
        if not isinstance(value, GraphModule):
            return value
        module = swaps.get(value, value)
        if module not in done:
            done[module] = copy_one(module)
        return done[module]

    def copy_one(module: GraphModule) -> GraphModule:
        root = {target: copy_value(value) for target, value in attributes(module).items()}
        return graph_module(root, copier(module.graph), like=module, lazy=lazy)

    return copy_one(gm)


def graph_module(
    root: Mapping[str, object], graph: Graph, *, like: GraphModule, lazy: bool = True
) -> GraphModule:
    """Return a module of a graph, with the class name, the mode and the `meta` of another one."""
    name = type(like).__name__
    make = graphs.lazy_graph_module if lazy else GraphModule
    new = make(dict(root), graph, name if name.isidentifier() else "GraphModule")
    new.training = like.training
    new.meta = copy.copy(like.meta)
    return new


def snapshot_graph(gm: GraphModule) -> Callable[[], GraphModule]:
    """Return a function that builds a copy of the graph as it is now.

    A snapshot costs a tuple per node, a hundredth of a copy: for states of which few are read. The
    arguments of a node are immutable, so that later changes do not show. During a user's pass nodes
    may be out of order; the copy has them sorted.
    """
    definitions = {node: _definition(node) for node in gm.graph.nodes}
    shared = attributes(gm)
    nested = {target: snapshot_graph(child) for target, child in children(gm).items()}

    def build() -> GraphModule:
        root = shared | {target: child() for target, child in nested.items()}
        order = topological([*definitions], lambda node: _reads(definitions[node]))
        return graph_module(root, _build([definitions[n] for n in order], gm.graph), like=gm)

    return build


@contextmanager
def pause_collection() -> Generator[None]:
    """Pause garbage collection in the body, for many small objects that all stay alive.

    A graph of 20,000 nodes is a million objects, and torch with a library of models another
    million. The collector would visit all of them several times during a copy or a compile (half
    of the time of a copy, a tenth of that of a compile), and frees nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
