"""A step from outside: try the nodes that somebody suspects before any search.

A right hint saves nearly all questions; a wrong one costs two.
"""

from collections.abc import Collection, Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.proposal import Guesses, Proposal, Step


def hint_step(names: Collection[str]) -> Step:
    """Return a step that keeps the named nodes only, or else their neighbours, too."""

    def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
        suspects = {name for unit in facts.units for name in unit if name in names}
        if not suspects:
            return []
        near = suspects | _neighbours(case, suspects)
        edits = [edit for kept in (suspects, near) if (edit := _keep(facts, kept)) is not None]
        return [Guesses(tuple(edits))] if edits else []

    return Step("hint", propose)


def _keep(facts: Facts, kept: set[str]) -> RemoveNodes | None:
    removed = tuple(n for unit in facts.units if not kept.intersection(unit) for n in unit)
    return RemoveNodes(removed) if removed else None


def _neighbours(case: Case, names: set[str]) -> set[str]:
    nodes = [node for node in case.graph.graph.nodes if node.name in names]
    operands = {operand.name for node in nodes for operand in node.all_input_nodes}
    return operands | {user.name for node in nodes for user in node.users}
