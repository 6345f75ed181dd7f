"""Properties of a node of an ATen graph: mutating, random, pure, a view, symbolic, escaping."""

import operator
from collections.abc import Hashable

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.operator_facts import READS_MEMORY, is_declared_view
from ctk.compiler.fx.types import value_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments, operators


def is_mutating(node: Node) -> bool:
    """Return whether a node writes to one of its operands."""
    declared = operators.declared_by(node.target)
    return declared.writes if declared is not None else bool(mutated_arguments(node))


def is_random(node: Node) -> bool:
    """Return whether a node draws random numbers, so that a second run gives others.

    Attention with `dropout_p=0` and `native_dropout` with `train=False` draw none. `native_dropout`
    in training draws even for p = 0: it advances the generator.
    """
    declared = operators.declared_by(node.target)
    if declared is None or not declared.random:
        return False
    if node.target is torch.ops.aten.native_dropout.default:
        return arguments.argument_of(node.target, node.args, node.kwargs, "train") is not False
    return arguments.argument_of(node.target, node.args, node.kwargs, "dropout_p") != 0.0


def is_effect(node: Node) -> bool:
    """Return whether a node must run even if nothing reads its result."""
    if node.op != "call_function":
        return False
    return is_mutating(node) or node.is_impure(impure_random=False)


def is_symbolic(node: Node) -> bool:
    """Return whether a node's value is a symbolic int, float or bool."""
    return fake.is_symbolic(value_of(node))


def is_pure(node: Node) -> bool:
    """Return whether a node may be dropped or merged: it has no side effect and draws nothing.

    Asserts and operators without a result exist for their effect.
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
    return node.target is operator.getitem or is_declared_view(node.target)


def base_of(node: Node) -> Node:
    """Return the node whose storage a chain of views starts from."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def escapes(node: Node, *, by_place: bool = True, by_writers: bool = True) -> bool:
    """Return whether another tensor with the values of a node would be noticed.

    The node or a view of it is returned, written, or (`by_place`) read at its place in memory, as
    `as_strided` does, or (`by_writers`) read by an operator that writes to another operand: the two
    may share memory.
    """
    queue, seen = [node], {node}
    while queue:
        alias = queue.pop()
        for user in alias.users:
            is_written = is_mutating(user) if by_writers else alias in mutated_arguments(user)
            if user.op == "output" or is_written or _is_opaque(user):
                return True
            if by_place and user.target in READS_MEMORY:
                return True
            if is_view(user) and user not in seen:
                seen.add(user)
                queue.append(user)
    return False


def _is_opaque(node: Node) -> bool:
    """Return whether a node's aliasing is unknown, as of a higher-order op."""
    return operators.declared_by(node.target) is None and not is_arithmetic(node)


def is_arithmetic(node: Node) -> bool:
    """Return whether a node calls a Python function on sizes or an item of a result."""
    return getattr(node.target, "__module__", None) in ("_operator", "operator", "math")


def mutated_bases(graph: Graph) -> set[Node]:
    """Return the nodes whose storage some node of the graph writes to."""
    writers = (node for node in graph.nodes if is_mutating(node))
    return {base_of(written) for node in writers for written in mutated_arguments(node)}


def is_constant(value: object) -> bool:
    """Return whether a value is known at compile time: an attribute, or pure calls on some."""
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
    """Return whether a node between two writes, so that operands of `first` may have changed."""
    node = first
    while node is not last:
        if is_mutating(node) or node.op == "root":  # past the end: not in this order
            return True
        node = node.next
    return False


def expression_of(node: Node) -> Hashable:
    """Return the key of a node. 1, 1.0 and True are different arguments."""
    return (node.op, str(node.target), _freeze(node.args), _freeze(node.kwargs))


def _freeze(value: object) -> Hashable:
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_freeze, value))
    if isinstance(value, dict):
        return tuple((key, _freeze(item)) for key, item in sorted(value.items()))
    if isinstance(value, slice):
        return ("slice", _freeze(value.start), _freeze(value.stop), _freeze(value.step))
    if isinstance(value, Node):
        return value
    return (type(value).__name__, repr(value))
