"""Copy a GraphModule: its graph and sub-graphs are new, its tensors and modules are shared.

What it does not do: it clones no tensor (a run that may change a buffer does that itself), and it
leaves out attributes that no node refers to.
"""

import copy
import operator
from collections.abc import Callable
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.torch_compat import copy_codegen, lazy_graph_module


def copy_graph_module(gm: GraphModule, *, lazy: bool = False) -> GraphModule:
    """Return a copy whose graph may be changed without any effect on `gm`.

    1. Nodes keep their names, types and, copied shallowly, their `meta`.
    2. Nested GraphModules (branches of `torch.cond`, bodies of loops) are copied too, each once.
    3. Tensors, parameters and other modules are shared.

    Args:
        gm: The graph to copy; not changed.
        lazy: Generate the Python code at the first call only. Three times faster, for a copy that
            is kept or interpreted; TorchScript cannot script it.
    """
    return _copy(gm, lazy, {})


def _copy(gm: GraphModule, lazy: bool, done: dict[int, GraphModule]) -> GraphModule:
    if id(gm) in done:
        return done[id(gm)]
    graph = copy_graph(gm.graph)
    targets = [str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module")]
    root = {target: _attribute(gm, target, lazy, done) for target in dict.fromkeys(targets)}
    new = _build(root, graph, type(gm).__name__, lazy)
    new.training = gm.training
    new.meta = copy.copy(gm.meta)
    done[id(gm)] = new
    return new


def _build(root: dict[str, object], graph: Graph, class_name: str, lazy: bool) -> GraphModule:
    if lazy:
        return lazy_graph_module(root, graph, class_name)
    return GraphModule(root, graph, class_name)


def copy_graph(graph: Graph) -> Graph:
    """Return a copy of `graph` with the same node names and the same calling convention.

    FX renames a node whose name it would not have given itself (`sum`, a builtin); the name is what
    observers and manifests refer to, so it is put back.
    """
    new = _built(_definitions(graph))
    copy_codegen(graph, new)
    return new


def _attribute(gm: GraphModule, target: str, lazy: bool, done: dict[int, GraphModule]) -> object:
    value = operator.attrgetter(target)(gm)
    return _copy(value, lazy, done) if isinstance(value, GraphModule) else value


Definition = tuple[Node, str, str, Any, Any, Any]
"""A node, and its op, name, target, args and kwargs at one moment."""


def snapshot_graph(gm: GraphModule) -> Callable[[], GraphModule]:
    """Remember a graph as it is now, and return what builds a copy of it later.

    Remembering costs a tuple per node, a hundredth of a copy: for states of which few are looked
    at. What a node refers to is kept by its immutable arguments, so later changes do not show.
    """
    definitions = _definitions(gm.graph)
    children = {
        name: snapshot_graph(child)
        for name, child in gm.named_children()
        if isinstance(child, GraphModule)
    }

    def build() -> GraphModule:
        graph = _built(definitions)
        targets = {str(d[3]) for d in definitions if d[1] in ("get_attr", "call_module")}
        root: dict[str, object] = {
            target: children[target]() if target in children else operator.attrgetter(target)(gm)
            for target in sorted(targets)
        }
        return _build(root, graph, type(gm).__name__, lazy=True)

    return build


def _definitions(graph: Graph) -> list[Definition]:
    return [(n, n.op, n.name, n.target, n.args, dict(n.kwargs)) for n in graph.nodes]


def _built(definitions: list[Definition]) -> Graph:
    graph = Graph()
    made: dict[Node, Node] = {}
    for old, op, name, target, args, kwargs in definitions:
        new_args = map_arg(args, lambda node: made[node])
        new_kwargs = map_arg(kwargs, lambda node: made[node])
        new = graph.create_node(op, target, new_args, new_kwargs, name, old.type)
        new.meta = copy.copy(old.meta)
        if new.name != name:
            new.name = name
        made[old] = new
    return graph
