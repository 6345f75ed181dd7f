"""The graphs of a trace: each graph once, as the edits of the most similar one before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from torch.fx import GraphModule, Node

from ctk.compiler.fx.types import type_text, value_of
from ctk.compiler.fx.walk import graphs_by_path
from ctk.toolkit.case.formats.limits import TRACE_NODES
from ctk.toolkit.case.graphs.graph_lines import node_line
from ctk.toolkit.case.graphs.places import module_of, place_of
from ctk.toolkit.compile_log.trace.document import TraceEdit, TraceGraph, TraceNode

Nodes = tuple[TraceNode, ...]

_RECENT = 6
"""How many of the last graphs are candidates for a base."""


@dataclass(slots=True)
class GraphTable:
    """Stores graphs up to a number of nodes; a graph beyond it is left out.

    Attributes:
        room: How many more nodes may be stored.
        rebuilt_room: How many more nodes the graphs may have when they are rebuilt.
        left_out: How many graphs were left out.
    """

    room: int
    rebuilt_room: int = TRACE_NODES
    left_out: int = 0
    graphs: list[TraceGraph] = field(default_factory=list[TraceGraph])
    _known: dict[GraphModule, int | None] = field(default_factory=dict[GraphModule, int | None])
    _recent: dict[int, Nodes] = field(default_factory=dict[int, Nodes])

    def add(self, gm: GraphModule | None) -> int | None:
        """Return the index of a graph, which is stored if it is new; None if it is left out."""
        if gm is None:
            return None
        if gm not in self._known:
            self._known[gm] = self._store(tuple(_nodes(gm)))
            self.left_out += self._known[gm] is None
        return self._known[gm]

    def _store(self, nodes: Nodes) -> int | None:
        base = self._find_base(nodes)
        edits = edit(self._recent[base] if base is not None else (), nodes)
        if base is not None and not edits:
            return base
        size = sum(len(each.nodes) for each in edits)
        if size > self.room or len(nodes) > self.rebuilt_room:
            return None
        self.room -= size
        self.rebuilt_room -= len(nodes)
        self.graphs.append(TraceGraph(base, edits))
        index = len(self.graphs) - 1
        self._recent[index] = nodes
        if len(self._recent) > _RECENT:
            del self._recent[min(self._recent)]
        return index

    def _find_base(self, nodes: Nodes) -> int | None:
        """Return the recent graph with the most nodes in common; None if they share few."""
        own = set(nodes)
        common = {index: len(own.intersection(other)) for index, other in self._recent.items()}
        best = max(common, key=lambda index: (common[index], index), default=None)
        return best if best is not None and 2 * common[best] > len(nodes) else None


def edit(old: Sequence[TraceNode], new: Sequence[TraceNode]) -> tuple[TraceEdit, ...]:
    """Return the edits that make a list of nodes into another one, in order."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return tuple(
        TraceEdit(start, end - start, tuple(new[first:last]))
        for tag, start, end, first, last in matcher.get_opcodes()
        if tag != "equal"
    )


def _nodes(gm: GraphModule) -> Iterator[TraceNode]:
    for path, graph in graphs_by_path(gm).items():
        prefix = f"{path}." if path else ""
        yield from (_node(node, prefix) for node in graph.graph.nodes)


def _node(node: Node, prefix: str) -> TraceNode:
    value = value_of(node)
    return TraceNode(
        name=prefix + node.name,
        op=node.op,
        text=node_line(node),
        inputs=tuple(prefix + operand.name for operand in node.all_input_nodes),
        value="" if value is None else type_text(value),
        place=place_of(node),
        module=module_of(node),
    )
