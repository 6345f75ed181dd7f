"""Copy a GraphModule: its graph and sub-graphs are new, its tensors and modules are shared.

What it does not do: it clones no tensor (a run that may change a buffer does that itself), and it
leaves out attributes that no node refers to.
"""

import copy

from torch.fx import Graph, GraphModule

from compiler.torch_compat import lazy_graph_module


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
    """Return a copy of `graph` with the same node names.

    FX renames a node whose name it would not have given itself (`sum`, a builtin); the name is what
    observers and manifests refer to, so it is put back.
    """
    new = copy.deepcopy(graph)
    for old_node, new_node in zip(graph.nodes, new.nodes, strict=True):
        if new_node.name != old_node.name:
            new_node.name = old_node.name
    return new


def _attribute(gm: GraphModule, target: str, lazy: bool, done: dict[int, GraphModule]) -> object:
    value: object = gm
    for part in target.split("."):
        value = getattr(value, part)
    return _copy(value, lazy, done) if isinstance(value, GraphModule) else value
