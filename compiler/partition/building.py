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
    """A graph under construction.

    Attributes:
        substitutes: The values that forward saves in place of nodes: the copy of an overwritten
            input, or the generator state of a random node. In backward: that state.
    """

    info: NodeInfo
    graph: Graph = field(default_factory=Graph)
    copies: dict[Node, Node] = field(default_factory=dict[Node, Node])
    substitutes: dict[Node, Node] = field(default_factory=dict[Node, Node])

    def append_inputs(self, nodes: Iterable[Node]) -> None:
        """Append placeholders for values of the joint graph."""
        for node in nodes:
            self.copies[node] = self.graph.placeholder(node.name)
            self.copies[node].meta = dict(node.meta)

    def append_states(self, drawn: Iterable[Node]) -> None:
        """Append placeholders for the states of generators."""
        for node in drawn:
            state = self.graph.placeholder(f"rng_state_{node.name}")
            state.meta = recipes.state_meta(node)
            self.substitutes[node] = state

    def copy_before(self, written: Iterable[Node]) -> None:
        """Copy inputs that are saved and overwritten; call it before other nodes are appended."""
        for node in sorted(written, key=self.info.order.__getitem__):
            copy = copy_before(node)
            if copy is None:
                raise CannotPartition(f"{node.name} is overwritten and cannot be copied before")
            self.substitutes[node] = copy(self.graph, self.copies[node])
            self.substitutes[node].meta = dict(node.meta)

    def append(self, node: Node) -> None:
        """Append a copy of a node."""
        if self._is_missing(node):
            copy = recipes.compute_in_backward(self.graph, node, self.copies.__getitem__)
            self.copies[node] = copy

    def append_drawn(self, node: Node) -> None:
        """Append a random node, and keep its generator state."""
        drawn = recipes.draw(self.graph, node, self.copies.__getitem__)
        self.copies[node], self.substitutes[node] = drawn

    def append_again(self, node: Node) -> None:
        """Append the recomputation of a node of forward."""
        if is_random(node):
            state = self.substitutes[node]
            again = recipes.draw_again(self.graph, node, state, self.copies.__getitem__)
            self.copies[node] = again
        elif self._is_missing(node):
            self.copies[node] = recipes.compute_again(self.graph, node, self.copies.__getitem__)

    def _is_missing(self, node: Node) -> bool:
        if node not in self.copies and node.op == "placeholder":
            raise CannotPartition(f"a graph needs {node.name}, which is not among its inputs")
        return node not in self.copies

    def results(self, nodes: Iterable[object]) -> list[object]:
        """Return the values of nodes here; other values unchanged."""
        return [self.copies[node] if isinstance(node, Node) else node for node in nodes]

    def saved(self, nodes: Iterable[Node]) -> list[object]:
        """Return the values that forward saves for nodes."""
        return [self.substitutes.get(node, self.copies[node]) for node in nodes]

    def finish(self, outputs: Sequence[object], descriptions: Sequence[object]) -> GraphModule:
        """Return the module, with the descriptions that AOTAutograd reads of its outputs."""
        output = self.graph.output(cast("Any", tuple(outputs)))
        output.meta["desc"] = list(descriptions)
        output.meta["output_stack_traces"] = [
            out.meta.get("stack_trace") if isinstance(out, Node) else None for out in outputs
        ]
        self.graph.lint()
        return GraphModule(self.info.joint, self.graph)
