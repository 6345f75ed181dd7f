"""Rewrite a graph so that all its floats are float64: the reference in high precision.

Only converting the inputs is not enough: a captured graph says `.half()`, `dtype=torch.float32`,
`.float()`, and the first `mm` of a float32 and a float64 value would raise. So each request for a
smaller float becomes one for float64 (and complex64 one for complex128). Casts to integers and
bools stay as they are, because they are part of the meaning; so do the arguments of autocast
regions, which leave float64 values alone. Two things have no float64 meaning and are refused:
reading the bits of a value as another dtype, and float8 or quantized numbers. Those programs are
compared with eager in their own dtype.

What it does not do: it does not make random ops draw the same numbers (see replay.py).
"""

from typing import cast

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument, map_aggregate

from ctk.compiler.errors import PrecisionRefused
from ctk.toolkit.run.clone import wider

METHODS = {
    "half": "double",
    "bfloat16": "double",
    "float": "double",
    "chalf": "cdouble",
    "cfloat": "cdouble",
}
"""Tensor methods that name a dtype smaller than float64, and what they become."""

TYPE_NAMES = frozenset({"Float", "Half", "BFloat16"})
"""Legacy tensor types (`x.type("torch.FloatTensor")`) that are small floats."""


def promote_graph(gm: GraphModule) -> None:
    """Rewrite `gm` and its nested graphs in place, so that no op asks for a float below float64.

    Raises:
        PrecisionRefused: A node reads bits as another dtype, or asks for float8 or quantized
            numbers.
    """
    for module in gm.modules():
        if isinstance(module, GraphModule):
            _promote(module.graph)
            module.recompile()


def _promote(graph: Graph) -> None:
    for node in graph.nodes:
        if node.op not in ("call_function", "call_method") or _is_autocast(node):
            continue
        if _reads_bits(node):
            raise PrecisionRefused(
                f"node {node.name} ({node.target}) reads the bits of a value as another dtype,"
                " which has no float64 form; compared in its own dtype"
            )
        if node.op == "call_method" and node.target in METHODS:
            node.target = METHODS[str(node.target)]
        node.args = cast(tuple[Argument, ...], map_aggregate(node.args, _promoted))
        node.kwargs = cast(dict[str, Argument], map_aggregate(node.kwargs, _promoted))


def _promoted(value: object) -> Argument:
    if isinstance(value, torch.dtype):
        return wider(value)
    if isinstance(value, str) and value.startswith("torch.") and value.endswith("Tensor"):
        kind = value.removeprefix("torch.").removesuffix("Tensor")
        return "torch.DoubleTensor" if kind in TYPE_NAMES else value
    return cast(Argument, value)


def _is_autocast(node: Node) -> bool:
    return "autocast" in getattr(node.target, "__name__", "")


def _reads_bits(node: Node) -> bool:
    """Return whether the node is a `view(dtype)`: only those ops called view take a dtype."""
    name = str(getattr(node.target, "__name__", node.target))
    if not name.startswith(("view", "frombuffer")):
        return False
    return any(isinstance(value, torch.dtype) for value in (*node.args, *node.kwargs.values()))
