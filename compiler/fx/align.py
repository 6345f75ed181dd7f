"""Give the nodes of a rebuilt graph the names of the nodes that they stand for.

A pass that returns a new graph module (an FX Transformer, a retrace) has named every node anew, and
the difference by name would be one change of everything. The nodes that only one side has are
aligned in order by what they call; pairs with the same operator get the old name. Wrong pairs do no
harm: their definitions differ, so they show as changed.

Source: Ratcliff and Obershelp's matching as in `difflib`, over operators instead of lines.
"""

from difflib import SequenceMatcher

from torch.fx import GraphModule, Node


def align_names(before: GraphModule, after: GraphModule) -> None:
    """Rename nodes of `after` in place to the names that they have in `before`."""
    known = {node.name for node in before.graph.nodes}
    named = {node.name for node in after.graph.nodes}
    lost = [node for node in before.graph.nodes if node.name not in named]
    new = [node for node in after.graph.nodes if node.name not in known]
    matcher = SequenceMatcher(
        None, [_kind(n) for n in lost], [_kind(n) for n in new], autojunk=False
    )
    for start, other, length in matcher.get_matching_blocks():
        for old, node in zip(
            lost[start : start + length], new[other : other + length], strict=True
        ):
            node.name = old.name
    after.recompile()


def _kind(node: Node) -> str:
    return f"{node.op} {node.target}"
