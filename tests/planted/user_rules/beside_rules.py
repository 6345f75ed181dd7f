"""A rule, a pass that uses a helper, and a function of a graph, in one module."""

from ctk.compiler.patterns.expression import Op
from ctk.compiler.patterns.matcher import Rule
from tests.planted.rules.common import X, x_of
from tests.planted.user_rules.graphs import aten, calls

RULE = Rule("relu of relu", Op(aten.relu.default, (Op(aten.relu.default, (X,)),)), x_of)


def helper(graph):
    return calls(graph, aten.neg.default)


def orphan(graph):
    for node in helper(graph):
        graph.erase_node(node)
