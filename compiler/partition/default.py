"""The plain partition: forward runs the program's forward, and saves all that backward reads.

Only checkpointed regions are recomputed. If backward reads only the size of a tensor, the size is
saved instead.

Source: torch/_functorch/partitioners.py, `default_partition`. Differs: the search starts from
backward; torch saves all of forward, then drops values without a reader.
"""

from torch.fx import Node

from ctk.compiler.fx.properties import is_effect, is_symbolic
from ctk.compiler.partition.classify import NodeInfo
from ctk.compiler.partition.roles import is_getitem, is_tensor, tag_of


def all_that_backward_reads(info: NodeInfo) -> list[Node]:
    """Return the values of forward that backward reads."""
    forward = _side_of_forward(info)
    saved: dict[Node, None] = {}
    ends = [out for out in info.backward_outputs if isinstance(out, Node)]
    effects = [node for node in info.backward if is_effect(node)]
    waiting = [*ends, *effects]
    seen = set(info.backward_inputs)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in forward and node not in info.recomputed and _can_be_saved(node):
            saved[node] = None
        else:
            waiting.extend(info.operands(node))
    return sorted(saved, key=info.order.__getitem__)


def _side_of_forward(info: NodeInfo) -> set[Node]:
    """Return the nodes that forward needs or traced, with the items and sizes of their values."""
    forward: set[Node] = set()
    for node in info.nodes:
        if node in info.backward:
            continue
        own = node in info.forward or node.op == "placeholder" or tag_of(node) == "is_forward"
        part = is_getitem(node) or is_symbolic(node)
        if own or (part and forward.issuperset(node.all_input_nodes)):
            forward.add(node)
    return forward


def _can_be_saved(node: Node) -> bool:
    return is_tensor(node) or is_symbolic(node)
