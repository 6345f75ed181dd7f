"""Faults of every kind, as passes over a graph of any stage, and a backend that runs one of them.

Each looks for one operator of `programs.py`, as Dynamo captured it or as AOT dispatch left it.
"""

import operator

import torch
from torch import nn

aten = torch.ops.aten
functional = nn.functional


def graph_of(gm):
    """Return the graph: Inductor hands over the graph itself."""
    return getattr(gm, "graph", gm)


def calls(gm, *targets):
    return [node for node in graph_of(gm).nodes if node.target in targets]


def hang(gm):
    """Swap the operands of a product until they are in order: they never are."""
    for node in calls(gm, torch.mul, operator.mul, aten.mul.Tensor):
        while True:
            node.args = (node.args[1], node.args[0])


def grow(gm):
    """Keep a table of every product that twice as many products are looked up in."""
    for _ in calls(gm, torch.mul, operator.mul, aten.mul.Tensor):
        table = [bytearray(b"x") * (1 << 22)]
        while len(table) < 1 << 11:  # 8 GB
            table += [bytearray(each) for each in table]


def draw(gm):
    """Draw the numbers of the second `bernoulli` before those of the first."""
    draws = calls(gm, torch.bernoulli, "bernoulli", aten.bernoulli.p)
    for first, second in zip(draws[::2], draws[1::2], strict=True):
        second.append(first)


def share(gm):
    """Leave copies out, although the program gives them to its caller."""
    graph = graph_of(gm)
    for node in calls(gm, torch.clone, "clone", aten.clone.default):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


def overflow(gm):
    """Compute softmax without taking the greatest value away first."""
    graph = graph_of(gm)
    for node in calls(gm, aten.sub.Tensor):
        if node.args[1].target is aten.amax.default:
            node.replace_all_uses_with(node.args[0])
    softmax = calls(gm, torch.softmax, "softmax", functional.softmax, aten._softmax.default)
    for node in softmax:
        is_aten = node.target is aten._softmax.default
        exp, total, div = torch.exp, torch.sum, torch.div
        if is_aten:
            exp, total, div = aten.exp.default, aten.sum.dim_IntList, aten.div.Tensor
        with graph.inserting_before(node):
            powers = graph.call_function(exp, (node.args[0],))
            sums = graph.call_function(total, (powers, [-1], True))
            made = graph.call_function(div, (powers, sums))
        node.replace_all_uses_with(made)
        graph.erase_node(node)


def _backend(fault):
    def compile_graph(gm, example_inputs):
        fault(gm)
        gm.recompile()
        return gm.forward

    return compile_graph


backend_hang = _backend(hang)
backend_grow = _backend(grow)
backend_draw = _backend(draw)
backend_share = _backend(share)
backend_overflow = _backend(overflow)


def backend_hangs_when_called(gm, example_inputs):
    def call(*args):
        while calls(gm, torch.mul, operator.mul):
            pass
        return gm(*args)

    return call


def backend_grows_when_called(gm, example_inputs):
    def call(*args):
        grow(gm)
        return gm(*args)

    return call
