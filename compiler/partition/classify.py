"""Classify the nodes of a joint graph by the sides that need and may compute them.

    sin = sin(primals_1); cos = cos(primals_1); mul = mul(tangents_1, cos); outputs: sin | mul
    forward = {primals_1, sin}, backward = {tangents_1, mul}, unclaimed: cos

Dead nodes belong to neither. Unclaimed nodes may run on either side.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from ctk.compiler.fx.properties import is_effect
from ctk.compiler.fx.walk import output_leaves
from ctk.compiler.partition.recipes import operands_again, operands_in_backward
from ctk.compiler.partition.roles import (
    is_backward_seed,
    is_forward_seed,
    is_primal,
    is_tangent,
    must_be_in_backward,
    must_recompute,
)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A classified joint graph.

    Attributes:
        nodes: The live nodes and all placeholders, in order, without the output.
        forward_inputs: Primals, then forward seeds.
        backward_inputs: Tangents, then backward seeds.
        backward_outputs: The gradients; None for an input without one.
        static: Primals that keep their memory from call to call (parameters): free to save.
        forward: Nodes that the forward outputs and the effects of forward need.
        backward: Nodes that only backward can compute: they depend on a tangent or are tagged.
        recomputed: Nodes that checkpointing wants recomputed.
        kept: Nodes that checkpointing wants saved.
    """

    joint: GraphModule
    nodes: tuple[Node, ...]
    order: Mapping[Node, int]
    forward_inputs: tuple[Node, ...]
    backward_inputs: tuple[Node, ...]
    forward_outputs: tuple[object, ...]
    backward_outputs: tuple[object, ...]
    static: frozenset[Node]
    forward: frozenset[Node]
    backward: frozenset[Node]
    recomputed: frozenset[Node]
    kept: frozenset[Node]

    def operands(self, node: Node) -> Iterable[Node]:
        """Return the operands that backward needs in order to compute a node."""
        return (operands_in_backward if node in self.backward else operands_again)(node)

    @property
    def demanded(self) -> list[Node]:
        """The outputs of backward that forward could compute: backward needs their values."""
        nodes = (out for out in self.backward_outputs if isinstance(out, Node))
        return [node for node in dict.fromkeys(nodes) if node not in self.backward]


def classify_nodes(
    joint: GraphModule, num_fwd_outputs: int, static_indices: Sequence[int] = ()
) -> NodeInfo:
    """Classify the nodes of a joint graph; `static_indices` are positions of static primals."""
    outputs = output_leaves(joint)
    nodes = [node for node in joint.graph.nodes if node.op != "output"]
    backward = frozenset(_backward_only(nodes))
    forward_outputs = tuple(_in_forward(out, backward) for out in outputs[:num_fwd_outputs])
    effects = [node for node in nodes if is_effect(node)]
    live = ancestors([*outputs, *forward_outputs, *effects], _operands_in_both)
    nodes = [node for node in nodes if node in live or node.op == "placeholder"]
    recomputed, kept = _split_checkpointed(nodes)
    primals = list(filter(is_primal, nodes))
    return NodeInfo(
        joint,
        tuple(nodes),
        {node: place for place, node in enumerate(nodes)},
        forward_inputs=(*primals, *filter(is_forward_seed, nodes)),
        backward_inputs=(*filter(is_tangent, nodes), *filter(is_backward_seed, nodes)),
        forward_outputs=forward_outputs,
        backward_outputs=tuple(outputs[num_fwd_outputs:]),
        static=frozenset(primals[i] for i in static_indices if i < len(primals)),
        forward=ancestors([*forward_outputs, *(node for node in effects if node not in backward)]),
        backward=backward.intersection(nodes),
        recomputed=recomputed,
        kept=kept,
    )


def all_operands(node: Node) -> Iterable[Node]:
    """Return the operands of a node."""
    return node.all_input_nodes


def _operands_in_both(node: Node) -> Iterable[Node]:
    return (*node.all_input_nodes, *operands_again(node))


def ancestors(
    ends: Iterable[object],
    operands: Callable[[Node], Iterable[Node]] = all_operands,
    given: Collection[Node] = (),
) -> frozenset[Node]:
    """Return `ends` and the nodes that they need, but not beyond the nodes in `given`."""
    nodes: set[Node] = set()
    waiting = [end for end in ends if isinstance(end, Node)]
    while waiting:
        node = waiting.pop()
        if node in nodes:
            continue
        nodes.add(node)
        if node not in given:
            waiting.extend(operands(node))
    return frozenset(nodes)


def _backward_only(nodes: Iterable[Node]) -> set[Node]:
    """Return the nodes that depend on a tangent or must be in backward."""
    found: set[Node] = set()
    for node in nodes:
        begins = is_tangent(node) or is_backward_seed(node) or must_be_in_backward(node)
        if begins or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _in_forward(output: object, backward: frozenset[Node]) -> object:
    """Return a forward output; of an input that backward alone writes to, the input."""
    if not isinstance(output, Node) or output not in backward or not is_effect(output):
        return output
    return output.args[0]


def _split_checkpointed(nodes: Iterable[Node]) -> tuple[frozenset[Node], frozenset[Node]]:
    """Return the nodes that checkpointing wants recomputed, and the nodes that it wants saved.

    The last value of a checkpointed region is saved if the next region begins with it or a hook of
    backward may need it: else one region would be recomputed within another.
    """
    recomputed: set[Node] = set()
    kept: set[Node] = set()
    for node in nodes:
        if node.meta.get("recompute") == CheckpointPolicy.MUST_SAVE:
            kept.add(node)
        elif must_recompute(node):
            (kept if _ends_region(node) else recomputed).add(node)
    return frozenset(recomputed), frozenset(kept)


def _ends_region(node: Node) -> bool:
    region = node.meta.get("ac_graph_id")
    users = [user for user in node.users if must_recompute(user)]
    if node.meta.get("has_backward_hook", False) and not users:
        return True
    others = [user.meta.get("ac_graph_id") for user in users]
    return region is not None and any(other is not None and other > region for other in others)
