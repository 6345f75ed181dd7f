"""The order of the nodes of a backward graph: compute again late, so that it lives shortly.

    joint: sin = sin(x); cos = cos(sin); mul = mul(tangents_2, y); neg = mul(mul, cos)
    backward, if x is saved: mul, sin, cos, neg: `sin` and `cos` right before who needs them

Source: torch/_functorch, `reordering_to_mimic_autograd_engine` and `raise_getitems`. Differs:
a list of nodes is ordered before the graph is built, instead of a graph rebuilt twice.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from torch.fx import Node

from ctk.compiler.fx.walk import topological
from ctk.compiler.partition.roles import is_getitem

Operands = Callable[[Node], Iterable[Node]]


def late(nodes: Sequence[Node], backward: Collection[Node], operands: Operands) -> list[Node]:
    """Return the nodes of a backward graph, each recomputed one right before its first user.

    Args:
        nodes: In the order of the joint graph.
        backward: Those that only backward can compute; they keep their order.
        operands: What each reads there.
    """
    place = {node: index for index, node in enumerate(nodes)}
    done: dict[Node, None] = {}
    for node in nodes:
        if node in backward:
            done |= dict.fromkeys(_with_operands(node, place, done, operands))
    return [*done, *(node for node in nodes if node not in done)]


def _with_operands(
    node: Node, place: dict[Node, int], done: Collection[Node], operands: Operands
) -> list[Node]:
    found: set[Node] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if current in found or current in done or current not in place:
            continue
        found.add(current)
        waiting.extend(operands(current))
    return topological(sorted(found, key=place.__getitem__), operands)


def getitems_first(nodes: Sequence[Node], operands: Operands) -> list[Node]:
    """Return nodes with each `getitem` right behind what it takes from, which is freed sooner."""
    takers: dict[Node, list[Node]] = {}
    inside = set(nodes)
    for node in nodes:
        if is_getitem(node) and [*operands(node)] == [node.args[0]] and node.args[0] in inside:
            takers.setdefault(node.all_input_nodes[0], []).append(node)
    moved = {taker for each in takers.values() for taker in each}
    ordered: list[Node] = []
    waiting = [node for node in reversed(nodes) if node not in moved]
    while waiting:
        node = waiting.pop()
        ordered.append(node)
        waiting.extend(reversed(takers.get(node, [])))
    return ordered
