"""Replace a value by any value that it was computed from: a path from one to the other goes."""

from collections import deque
from collections.abc import Iterator

from torch.fx import Node

from ctk.compiler.fx.walk import CALLS
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.eager_values import TensorInfo
from ctk.toolkit.reduce.edits import Reconnect
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset

EVERY_PAIR = 12
"""Up to so many units, all ancestors are proposed; in a larger program, the operands of a node."""


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose for each value its ancestors, the nearest first; the last values first."""
    units = {name: unit for unit in facts.units for name in unit}
    is_small = len(facts.units) <= EVERY_PAIR
    atoms = [
        (units[node.name], node.name, ancestor)
        for node in reversed(case.graph.graph.nodes)
        if node.op in CALLS and node.name in units and _is_tensor(node.name, facts)
        for ancestor in _ancestors(node, units[node.name], facts, is_deep=is_small)
    ]
    return [Subset(_shortcut, tuple(atoms))] if atoms else []


def _shortcut(atoms: tuple[tuple[tuple[str, ...], str, str], ...]) -> Reconnect:
    names = dict.fromkeys(name for unit, _, _ in atoms for name in unit)
    return Reconnect(tuple(names), tuple((node, ancestor) for _, node, ancestor in atoms))


def _ancestors(node: Node, unit: tuple[str, ...], facts: Facts, *, is_deep: bool) -> Iterator[str]:
    """Yield the tensors that a value was computed from, by distance; else the nearest each way."""
    todo, seen = deque(node.all_input_nodes), {node}
    while todo:
        each = todo.popleft()
        if each in seen:
            continue
        seen.add(each)
        is_found = each.name not in unit and _is_tensor(each.name, facts)
        if is_found:
            yield each.name
        if is_deep or not is_found:
            todo.extend(each.all_input_nodes)


def _is_tensor(name: str, facts: Facts) -> bool:
    return isinstance(facts.infos[name], TensorInfo)


STEP = Step("shortcut", propose, is_thorough=False)
