"""Passes that are functions of a graph, and right."""

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


def swapped_product(graph: Graph) -> None:
    for node in calls(graph, aten.mul.Tensor):
        if look_alike(*node.args) and not type_of(node).is_complex():  # whose bits have an order
            node.args = node.args[::-1]


def relu_of_relu(graph: Graph) -> None:
    for node in calls(graph, aten.relu.default):
        if is_call(node.args[0], aten.relu.default) and is_pure(graph):
            node.args = node.args[0].args


def not_not_not(graph: Graph) -> None:
    target = aten.bitwise_not.default
    for node in calls(graph, target):
        inner = node.args[0]
        if is_call(inner, target) and is_call(inner.args[0], target) and is_pure(graph):
            node.args = inner.args[0].args


def nothing_reads_it(gm: GraphModule) -> None:
    if is_pure(gm.graph):
        gm.graph.eliminate_dead_code()


def swapped_add(graph: Graph) -> None:
    for node in calls(graph, aten.add.Tensor):
        if look_alike(*node.args) and not node.kwargs and not type_of(node).is_complex():
            node.args = node.args[::-1]


def twice_is_a_sum(graph: Graph) -> None:
    for node in calls(graph, aten.mul.Tensor):
        x, number = node.args
        if type(number) is int and number == 2 and is_float(x):
            put(graph, node, aten.add.Tensor, x, x)


def greater_is_less(graph: Graph) -> None:
    for node in calls(graph, aten.gt.Tensor):
        if look_alike(*node.args):
            put(graph, node, aten.lt.Tensor, *reversed(node.args))


def swapped_dims(graph: Graph) -> None:
    for node in calls(graph, aten.transpose.int):
        x, one, other = node.args
        node.args = (x, other, one)


def t_is_transpose(graph: Graph) -> None:
    for node in calls(graph, aten.t.default):
        tensor = type_of(node.args[0])  # None of what was put in just now
        if tensor is not None and tensor.dim() == 2:
            put(graph, node, aten.transpose.int, node.args[0], 0, 1)


def abs_of_abs(graph: Graph) -> None:
    for node in calls(graph, aten.abs.default):
        inner = node.args[0]
        if not is_call(inner, aten.abs.default) or not is_pure(graph):
            continue
        if not type_of(inner.args[0]).is_complex():
            node.args = inner.args


def equal_is_not_unequal(graph: Graph) -> None:
    for node in calls(graph, aten.eq.Tensor):
        if look_alike(*node.args):
            with graph.inserting_before(node):
                unequal = graph.call_function(aten.ne.Tensor, node.args)
            put(graph, node, aten.logical_not.default, unequal)


def difference_is_a_sum(graph: Graph) -> None:
    for node in calls(graph, aten.sub.Tensor):
        if look_alike(*node.args) and is_float(node.args[0]):
            alpha = node.kwargs.get("alpha", 1)
            put(graph, node, aten.add.Tensor, *node.args, alpha=-alpha)


def bias_of_a_product(graph: Graph) -> None:
    """Rounds otherwise, and says so."""
    for node in calls(graph, aten.add.Tensor):
        product, bias = node.args
        if node.kwargs or not is_call(product, aten.mm.default) or not is_pure(graph):
            continue
        if look_alike(product, bias) and is_float(bias):
            put(graph, node, aten.addmm.default, bias, *product.args)


bias_of_a_product.numerics = "reassociates"
