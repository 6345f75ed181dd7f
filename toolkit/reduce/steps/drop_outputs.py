"""Drop results: first all but the one computed last, then any combination.

Truncation ends at the failure, so that the last result most likely shows it. A result that is a
part of a node's value goes with its `getitem`; the node then stays unread.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass

from torch.fx import Node

from ctk.compiler.fx.rebuild import Change
from ctk.compiler.fx.walk import CALLS, by_name, output_leaves
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.eager_values import TensorInfo
from ctk.toolkit.reduce.edits import DropOutputs, listing
from ctk.toolkit.reduce.graph_changes import change_graph
from ctk.toolkit.reduce.proposal import Guesses, Proposals, Step, Subset


@dataclass(frozen=True, slots=True)
class LeaveUnread:
    """Drop results that are parts of a node's value, which stays; an operand replaces the last."""

    names: tuple[str, ...]

    def says(self) -> str:
        return f"nothing of {listing(self.names)} as a result"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        nodes = [by_name(case.graph)[name] for name in self.names]
        gone = {part.name for node in nodes for part in node.users}
        kept = [leaf.name for leaf in output_leaves(case.graph) if isinstance(leaf, Node)]
        read = [operand.name for node in nodes for operand in node.all_input_nodes]
        tensors = [name for name in read if isinstance(facts.infos[name], TensorInfo)]
        outputs = [name for name in kept if name not in gone] or tensors[:1]
        if not outputs:
            return None
        dead = frozenset(self.names)
        return change_graph(case, Change(gone=frozenset(gone), dead=dead, outputs=tuple(outputs)))


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to keep only the last computed result; to drop any; to leave values unread."""
    leaves = output_leaves(case.graph)
    unread = tuple(_only_results(case))
    last_turn = [Subset(LeaveUnread, unread)] if unread else []
    if len(leaves) < 2:
        return last_turn
    order = {node: place for place, node in enumerate(case.graph.graph.nodes)}
    places = [order[leaf] if isinstance(leaf, Node) else -1 for leaf in leaves]
    last = places.index(max(places))
    positions = tuple(range(len(leaves)))
    others = tuple(position for position in positions if position != last)
    return [Guesses((DropOutputs(others),)), Subset(DropOutputs, positions), *last_turn]


def _only_results(case: Case) -> Iterator[str]:
    """Yield the nodes of whose values only parts are read, and these only as results."""
    for node in case.graph.graph.nodes:
        if node.op in CALLS and node.users and all(map(_is_only_result, node.users)):
            yield node.name


def _is_only_result(part: Node) -> bool:
    is_part = part.target is operator.getitem and type(part.args[1]) is int
    return is_part and all(user.op == "output" for user in part.users)


STEP = Step("drop_outputs", propose, is_thorough=False)
