"""Questions that passes ask of a node: is it pure, random, a view, does it escape.

Graphs here are ATen-level (after autograd dispatch) unless said otherwise; nothing is changed.
"""

import operator
from collections.abc import Callable, Mapping

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.torch_compat.fx import arguments, operators

aten = torch.ops.aten
UNDECLARED_VIEWS: Mapping[object, Callable[..., object]] = {
    aten._unsafe_view.default: aten.view.default,
    aten.unsafe_chunk.default: aten.chunk.default,
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}
"""Views whose schema hides it from autograd, and the same ops with an honest one."""


def is_mutating(node: Node) -> bool:
    """Return whether a node writes to one of its operands."""
    declared = operators.declared_by(node.target)
    return declared.writes if declared is not None else bool(mutated_arguments(node))


def is_random(node: Node) -> bool:
    """Return whether a node draws random numbers; attention draws none where it drops nothing."""
    declared = operators.declared_by(node.target)
    if declared is None or not declared.random:
        return False
    return arguments.argument_of(node.target, node.args, node.kwargs, "dropout_p") != 0.0


def is_pure(node: Node) -> bool:
    """Return whether a node may be dropped or merged: no side effects, and no randomness.

    Operators that return nothing and asserts are there for their effect.
    """
    if node.op == "get_attr":
        return True
    if node.op != "call_function":
        return False
    declared = operators.declared_by(node.target)
    if declared is None:
        return is_arithmetic(node)
    if declared.writes or is_random(node) or not declared.returns:
        return False
    if node.is_impure(impure_random=False):
        return False
    return "assert" not in str(node.target)


def is_view(node: Node) -> bool:
    """Return whether a node's result may share storage with an operand."""
    if node.target in UNDECLARED_VIEWS:
        return True
    declared = operators.declared_by(node.target)
    return declared.views if declared is not None else node.target is operator.getitem


def base_of(node: Node) -> Node:
    """Return the node whose storage a chain of views starts from."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def escapes(node: Node) -> bool:
    """Return whether a node or a view of it leaves the graph: returned, or written to an input."""
    queue, seen = [node], {node}
    while queue:
        for user in queue.pop().users:
            if user.op == "output" or is_mutating(user) or _is_opaque(user):
                return True
            if is_view(user) and user not in seen:
                seen.add(user)
                queue.append(user)
    return False


def _is_opaque(node: Node) -> bool:
    """Return whether a node's aliasing is unknown, as of a higher-order op."""
    return operators.declared_by(node.target) is None and not is_arithmetic(node)


def is_arithmetic(node: Node) -> bool:
    """Return whether a node calls a Python function on sizes, or picks an item of a result."""
    return getattr(node.target, "__module__", None) in ("_operator", "operator", "math")


def mutated_bases(graph: Graph) -> set[Node]:
    """Return the nodes whose storage some node of the graph writes to."""
    writers = (node for node in graph.nodes if is_mutating(node))
    return {base_of(written) for node in writers for written in mutated_arguments(node)}


def is_constant(value: object) -> bool:
    """Return whether a value is known at compile time: an attribute, or a pure call on some."""
    queue, seen = [value], set[Node]()
    while queue:
        node = queue.pop()
        if not isinstance(node, Node):
            return False
        if node in seen or node.op == "get_attr":
            continue
        if node.op != "call_function" or not is_pure(node) or not node.all_input_nodes:
            return False
        seen.add(node)
        queue += node.all_input_nodes
    return True


def is_written_between(first: Node, last: Node) -> bool:
    """Return whether some node writes between two: what `first` reads may not be read at `last`."""
    node = first
    while node is not last:
        if is_mutating(node) or node.op == "root":  # past the end: they are not in order
            return True
        node = node.next
    return False
