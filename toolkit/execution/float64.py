"""Rewrite a graph so that all its floats are float64: the reference in high precision.

The table of replacements is repro_templates/numbers/float64.py. It does not make random operators
draw the same numbers (repro_templates/graph/random_draws.py).
"""

from typing import cast

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument, map_aggregate

from ctk.compiler.errors import PrecisionRefused
from ctk.repro_templates.numbers.float64 import METHODS, reads_bits, wide_argument


def upcast_graph(gm: GraphModule) -> None:
    """Rewrite `gm` and its nested graphs in place, so that no op asks for a float below float64.

    Raises:
        PrecisionRefused: A node reads bits as another dtype, or asks for float8 or quantized
            numbers.
    """
    for module in gm.modules():
        if isinstance(module, GraphModule):
            _upcast(module.graph)
            module.recompile()


def _upcast(graph: Graph) -> None:
    for node in graph.nodes:
        name = str(getattr(node.target, "__name__", node.target))
        if node.op not in ("call_function", "call_method") or "autocast" in name:
            continue
        if reads_bits(name, (*node.args, *node.kwargs.values())):
            raise PrecisionRefused(
                f"node {node.name} ({node.target}) reads the bits of a value as another dtype,"
                " which has no float64 form; compared in its own dtype"
            )
        _widen(node)


def _widen(node: Node) -> None:
    if node.op == "call_method" and node.target in METHODS:
        node.target = METHODS[str(node.target)]
    node.args = map_aggregate(node.args, _wide)
    node.kwargs = map_aggregate(node.kwargs, _wide)


def _wide(value: object) -> Argument:
    return cast(Argument, wide_argument(value))
