"""Drop operands of calls of sub-graphs (`cond`, a checkpoint) that none of these reads.

The state of a loop is left alone: each round gets the results of the one before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Graph, Node

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.rebuild import Change, rebuild
from ctk.compiler.fx.walk import by_name, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.graph_changes import change_graph
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset
from ctk.toolkit.reduce.subgraphs import LOOPS, PLAIN_BODIES, Subgraph, operands_of, subgraphs


@dataclass(frozen=True, slots=True)
class DropOperands:
    """Drop operands of calls and the sub-graph inputs that they feed: pairs (call, position)."""

    places: tuple[tuple[str, int], ...]

    def says(self) -> str:
        return ", ".join(f"{call} without operand {place}" for call, place in self.places)

    def apply(self, case: Case, facts: Facts) -> Case | None:
        graph = copy_graph_module(case.graph)
        nodes, modules = by_name(graph), dict[str, object]()
        for call in dict.fromkeys(name for name, _ in self.places):
            places = {place for name, place in self.places if name == call}
            bodies = _bodies(case, call)
            _drop_arguments(nodes[call], places, len(placeholders(bodies[0].graph)))
            for body in bodies:
                inputs = placeholders(body.graph)
                gone = frozenset(inputs[place].name for place in places)
                built = rebuild(body.graph, Change(gone=gone))
                if built is None:
                    return None
                modules[body.target] = built.graph
        graph.recompile()
        return change_graph(replace(case, graph=graph), Change(modules=modules, keep_inputs=True))


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to drop any combination of the operands that no sub-graph reads."""
    places = tuple(
        (node.name, place) for node in case.graph.graph.nodes for place in _unread(case, node)
    )
    return [Subset(DropOperands, places)] if places else []


def _unread(case: Case, call: Node) -> Iterator[int]:
    name = getattr(call.target, "__name__", "")
    bodies = _bodies(case, call.name) if name in PLAIN_BODIES - LOOPS else []
    inputs = [placeholders(body.graph) for body in bodies]
    if (
        not inputs
        or len({len(each) for each in inputs}) > 1
        or _are_shared(case.graph.graph, bodies)
    ):
        return
    if _operand_list(call, len(inputs[0])) is None:
        return
    for place in range(len(inputs[0])):
        if not any(each[place].users for each in inputs):
            yield place


def _bodies(case: Case, call: str) -> list[Subgraph]:
    return [subgraph for subgraph in subgraphs(case.graph) if subgraph.call == call]


def _are_shared(graph: Graph, bodies: Sequence[Subgraph]) -> bool:
    """Return whether another call, or the same one twice, has one of the sub-graphs."""
    targets = [body.target for body in bodies]
    reads = [len(n.users) for n in graph.find_nodes(op="get_attr") if n.target in targets]
    return len(set(targets)) < len(targets) or any(count > 1 for count in reads)


def _operand_list(call: Node, count: int) -> tuple[Any, ...] | None:
    """Return the operands of a call where they stand: in its last argument, or at its end."""
    operands = operands_of(call, count)
    last = call.args[-1] if call.args else None
    at_end = last if isinstance(last, tuple | list) else call.args[len(call.args) - count :]
    return operands if operands is not None and tuple(at_end) == operands else None


def _drop_arguments(call: Node, places: set[int], count: int) -> None:
    operands = _operand_list(call, count) or ()
    kept = tuple(each for place, each in enumerate(operands) if place not in places)
    if isinstance(call.args[-1], tuple | list):
        call.args = (*call.args[:-1], kept)
    else:
        call.args = (*call.args[: len(call.args) - count], *kept)


STEP = Step("drop_operands", propose)
