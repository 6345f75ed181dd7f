"""Sub-graphs of higher-order ops, and their operands."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from ctk.compiler.fx.walk import CALLS, fetch, flat

LOOPS = frozenset({"while_loop"})
"""Higher-order operators whose sub-graphs get their own results as operands."""

PLAIN_BODIES = LOOPS | {
    "cond", "tag_activation_checkpoint", "wrap_activation_checkpoint", "wrap",
    "invoke_subgraph", "wrap_with_set_grad_enabled", "wrap_with_autocast",
}  # fmt: skip
"""Higher-order operators whose sub-graphs get the operands as they are."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A sub-graph that a node calls: `target` is where the outer graph holds it."""

    call: str
    target: str
    graph: GraphModule


def subgraphs(gm: GraphModule) -> Iterator[Subgraph]:
    """Yield the sub-graphs that the nodes of a graph call, in order."""
    for node in gm.graph.nodes:
        for argument in node.all_input_nodes if node.op in CALLS else ():
            found = fetch(gm, str(argument.target)) if argument.op == "get_attr" else None
            if isinstance(found, GraphModule):
                yield Subgraph(node.name, str(argument.target), found)


def operands_of(call: Node, count: int) -> tuple[object, ...] | None:
    """Return the `count` values with which a call runs its sub-graphs; None if that is unknown.

    Higher-order ops take their sub-graphs first and the operands last, flat or in one tuple.
    """
    values = [leaf for leaf in flat(call.args) if not _is_subgraph(call, leaf)]
    return tuple(values[-count:]) if 0 < count <= len(values) else (() if count == 0 else None)


def _is_subgraph(call: Node, leaf: object) -> bool:
    if not isinstance(leaf, Node) or leaf.op != "get_attr" or call.graph.owning_module is None:
        return False
    return isinstance(fetch(call.graph.owning_module, str(leaf.target)), GraphModule)
