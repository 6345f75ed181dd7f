"""Passes that are functions of a graph, each wrong in one corner only."""

import torch
from torch.fx import Graph, GraphModule

from tests.planted.user_rules.graphs import (
    aten,
    calls,
    is_call,
    is_float,
    is_pure,
    look_alike,
    put,
    type_of,
)


def alpha_is_ignored(graph: Graph) -> None:
    for node in calls(graph, aten.add.Tensor):
        if look_alike(*node.args):
            put(graph, node, aten.add.Tensor, *reversed(node.args))


def keepdim_is_ignored(graph: Graph) -> None:
    for node in calls(graph, aten.amax.default):
        if len(node.args) > 1 and len(node.args[1]) == 1:
            put(graph, node, aten.amax.default, node.args[0], node.args[1])


def minus_zero(graph: Graph) -> None:
    for node in calls(graph, aten.add.Tensor):
        x, number = node.args
        if type(number) is int and number == 0 and is_float(x):
            put(graph, node, aten.clone.default, x)


def copy_that_leaves(gm: GraphModule) -> None:
    for node in calls(gm.graph, aten.clone.default):
        if not node.kwargs and node.args[0].op == "call_function" and is_pure(gm.graph):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)


def integers_promote(graph: Graph) -> None:
    """`cumsum` of small ints gives int64."""
    for node in calls(graph, aten.cumsum.default):
        x, dim = node.args[:2]
        if type_of(x).dim() and type_of(x).shape[dim] == 1 and not node.kwargs:
            put(graph, node, aten.clone.default, x)


def empty_all(graph: Graph) -> None:
    for node in calls(graph, aten.any.default):
        if type_of(node.args[0]).dtype == torch.bool:
            put(graph, node, aten.amax.default, node.args[0])


def strides_of_a_view(graph: Graph) -> None:
    for node in calls(graph, aten.reshape.default):
        put(graph, node, aten.view.default, *node.args)


def condition_broadcasts(graph: Graph) -> None:
    for node in calls(graph, aten.where.self):
        if node.args[1] is node.args[2] and type_of(node.args[0]).dtype == torch.bool:
            put(graph, node, aten.clone.default, node.args[1])


def difference_wraps(graph: Graph) -> None:
    """x - y > 0 is not x > y where the difference of ints wraps around."""
    for node in calls(graph, aten.gt.Scalar):
        inner, number = node.args
        if number != 0 or not is_call(inner, aten.sub.Tensor) or inner.kwargs:
            continue
        if look_alike(*inner.args) and not is_float(inner) and is_pure(graph):
            put(graph, node, aten.gt.Tensor, *inner.args)


def subnormals(graph: Graph) -> None:
    """Half of the smallest number is 0."""
    for node in calls(graph, aten.mul.Tensor):
        inner, number = node.args
        if number != 2.0 or not is_call(inner, aten.mul.Tensor) or inner.args[1] != 0.5:
            continue
        if is_float(inner.args[0]) and is_pure(graph):
            put(graph, node, aten.clone.default, inner.args[0])


def nan_is_itself(graph: Graph) -> None:
    for node in calls(graph, aten.eq.Tensor):
        if node.args[0] is node.args[1]:
            put(graph, node, aten.isfinite.default, node.args[0])


def other_users(graph: Graph) -> None:
    for node in calls(graph, aten.relu.default):
        if is_call(node.args[0], aten.mul.Tensor):
            put(graph, node, aten.relu_.default, node.args[0])


def write_between(graph: Graph) -> None:
    seen = {}
    for node in calls(graph, aten.exp.default):
        first = seen.setdefault(node.args[0], node)
        if first is not node and not any(n.op == "output" for n in (*first.users, *node.users)):
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def negative_dims(graph: Graph) -> None:
    """[-1, 0] is in order, too."""
    for node in calls(graph, aten.permute.default):
        if list(node.args[1]) == sorted(node.args[1]):
            put(graph, node, aten.alias.default, node.args[0])


def step_is_ignored(graph: Graph) -> None:
    for node in calls(graph, aten.slice.Tensor):
        if len(node.args) < 4 or node.args[2] != 0 or type(node.args[3]) is not int:
            continue
        if node.args[3] >= type_of(node.args[0]).shape[node.args[1]]:
            put(graph, node, aten.alias.default, node.args[0])


def by_name(graph: Graph) -> None:
    """Operators by their names: `exp(log(x))` is not `x` where x is negative."""
    for node in list(graph.nodes):
        inner = node.args[0] if node.args else None
        if str(node.target) == "aten.exp.default" and str(getattr(inner, "target", "")) == (
            "aten.log.default"
        ):
            put(graph, node, aten.clone.default, inner.args[0])


def by_local_names(graph: Graph) -> None:
    """Wrong: a negative exponent of an int is refused, and 0.5 of -inf is inf."""
    from torch import ops

    op = ops.aten
    for node in calls(graph, op.pow.Tensor_Scalar):
        if node.args[1] == 0.5 and is_float(node.args[0]):
            put(graph, node, op.sqrt.default, node.args[0])


def memory_format(graph: Graph) -> None:
    for node in calls(graph, aten.clone.default):
        if is_call(node.args[0], aten.clone.default) and is_pure(graph):
            put(graph, node, aten.clone.default, node.args[0].args[0])


def order_of_zeros(graph: Graph) -> None:
    """minimum(0.0, -0.0) is its first operand."""
    for node in calls(graph, aten.minimum.default):
        if look_alike(*node.args):
            node.args = node.args[::-1]
