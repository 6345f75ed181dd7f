"""Trace nodes of a traced graph back to the captured one: the operators in the user's program.

Forward nodes carry the captured node from which they came; backward nodes share the sequence number
of the forward node whose gradient they compute. Both are torch's own bookkeeping, so the result is
a hint: the reducer tries it first and believes only its oracle.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from torch.fx import GraphModule, Node

from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.compile_log.recorder import CompileLog


def trace_to_captured(culprit: Culprit, log: CompileLog, captured: GraphModule) -> Culprit:
    """Return a culprit with the captured nodes from which its nodes came."""
    for graph in _graphs_of(culprit, log):
        names = names_in_captured(culprit.nodes, graph, captured)
        if names:
            return replace(culprit, captured=names)
    return culprit


def _graphs_of(culprit: Culprit, log: CompileLog) -> Iterator[GraphModule]:
    yield from (p.before for p in log.passes() if str(p.id) == culprit.where)
    yield from (e.graph for e in log.errors() if e.graph is not None)
    yield from (k.graph for k in log.kernels() if str(k.id) in culprit.veto.kernels)


def names_in_captured(
    names: Iterable[str], graph: GraphModule, captured: GraphModule
) -> tuple[str, ...]:
    """Return the nodes of `captured` from which the named nodes (unknown ones are skipped) came."""
    nodes = {node.name: node for node in graph.graph.nodes}
    own = {n.name for n in captured.graph.nodes if n.op not in ("placeholder", "output")}
    by_number = _by_sequence_number(nodes.values(), own)
    found: set[str] = set()
    for name in names:
        node = nodes.get(name)
        if node is None:
            continue
        origins = _origins(node, own) or by_number.get(node.meta.get("seq_nr"), set[str]())
        found |= origins or ({name} & own)
    return tuple(n.name for n in captured.graph.nodes if n.name in found)


def _by_sequence_number(nodes: Iterable[Node], own: set[str]) -> Mapping[object, set[str]]:
    numbered: dict[object, set[str]] = {}
    for node in nodes:
        number = node.meta.get("seq_nr")
        if number is not None:
            numbered.setdefault(number, set()).update(_origins(node, own))
    return numbered


def _origins(node: Node, own: set[str]) -> set[str]:
    """Return the captured names in the history of a node; the history nests."""
    queue = list(cast("list[Any]", node.meta.get("from_node") or []))
    found: set[str] = set()
    while queue:
        source = queue.pop()
        if getattr(source, "name", None) in own:
            found.add(str(source.name))
        queue.extend(getattr(source, "from_node", None) or [])
    return found
