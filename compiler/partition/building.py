"""A forward or a backward graph, built node by node from a joint graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.fx.properties import is_random
from ctk.compiler.partition import recipes
from ctk.compiler.partition.classify import NodeInfo
from ctk.compiler.partition.network import CannotPartition
from ctk.compiler.partition.overwritten import copy_before


@dataclass(slots=True)
class Building:
    """A graph as it grows.

    Attributes:
        info: The joint graph.
        graph: What there is so far.
        copies: The value of each node of the joint graph here.
        kept: What forward saves in place of a node: the copy of what it overwrites later, or the
            state from which it has drawn. In backward: that state.
    """

    info: NodeInfo
    graph: Graph = field(default_factory=Graph)
    copies: dict[Node, Node] = field(default_factory=dict[Node, Node])
    kept: dict[Node, Node] = field(default_factory=dict[Node, Node])

    def append_inputs(self, nodes: Iterable[Node]) -> None:
        """Append placeholders for values of the joint graph."""
        for node in nodes:
            self.copies[node] = self.graph.placeholder(node.name)
            self.copies[node].meta = dict(node.meta)

    def append_states(self, drawn: Iterable[Node]) -> None:
        """Append placeholders for the states of generators."""
        for node in drawn:
            self.kept[node] = self.graph.placeholder(f"rng_state_{node.name}")
            self.kept[node].meta = recipes.state_meta(node)

    def copy_before(self, written: Iterable[Node]) -> None:
        """Copy inputs that are saved and overwritten; before anything else is appended."""
        for node in sorted(written, key=self.info.order.__getitem__):
            copy = copy_before(node)
            if copy is None:
                raise CannotPartition(f"{node.name} is overwritten and cannot be copied before")
            self.kept[node] = copy(self.graph, self.copies[node])
            self.kept[node].meta = dict(node.meta)

    def append(self, node: Node) -> None:
        """Append a node as it is."""
        if self._is_missing(node):
            copy = recipes.compute_in_backward(self.graph, node, self.copies.__getitem__)
            self.copies[node] = copy

    def append_drawn(self, node: Node) -> None:
        """Append a random node, and keep the state from which it draws."""
        drawn = recipes.draw(self.graph, node, self.copies.__getitem__)
        self.copies[node], self.kept[node] = drawn

    def append_again(self, node: Node) -> None:
        """Append what computes a node of forward once more."""
        if is_random(node):
            state = self.kept[node]
            again = recipes.draw_again(self.graph, node, state, self.copies.__getitem__)
            self.copies[node] = again
        elif self._is_missing(node):
            self.copies[node] = recipes.compute_again(self.graph, node, self.copies.__getitem__)

    def _is_missing(self, node: Node) -> bool:
        if node not in self.copies and node.op == "placeholder":
            raise CannotPartition(f"a graph needs {node.name}, which is not among its inputs")
        return node not in self.copies

    def results(self, nodes: Iterable[object]) -> list[object]:
        """Return the values of nodes here; anything else as it is."""
        return [self.copies[node] if isinstance(node, Node) else node for node in nodes]

    def saved(self, nodes: Iterable[Node]) -> list[object]:
        """Return what forward saves of nodes."""
        return [self.kept.get(node, self.copies[node]) for node in nodes]

    def finish(self, outputs: Sequence[object], descriptions: Sequence[object]) -> GraphModule:
        """Return the module, with what AOTAutograd reads of its outputs."""
        output = self.graph.output(cast("Any", tuple(outputs)))
        output.meta["desc"] = list(descriptions)
        output.meta["output_stack_traces"] = [
            out.meta.get("stack_trace") if isinstance(out, Node) else None for out in outputs
        ]
        self.graph.lint()
        return GraphModule(self.info.joint, self.graph)
