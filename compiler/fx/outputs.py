"""Nested outputs: autograd dispatch needs a flat tuple, callers the nesting of the graph."""

from collections.abc import Callable, Sequence
from typing import cast

from torch.fx import GraphModule
from torch.fx.node import Argument

from ctk.compiler.torch_compat.fx import graphs

Restore = Callable[[Sequence[object]], object]


def flatten_outputs(gm: GraphModule) -> Restore | None:
    """Make a graph return a flat tuple; return the function to its own result, None if equal."""
    output = gm.graph.output_node()
    value = output.args[0]
    restore = restore_of(gm)
    if isinstance(value, (tuple, list)) and not _has_nested(value):
        return restore
    output.args = (tuple(cast("list[Argument]", graphs.tree_leaves(value))),)
    graphs.plain_codegen(gm.graph)
    gm.recompile()
    return restore


def restore_of(gm: GraphModule) -> Restore | None:
    """Return a function from a flat tuple to a graph's own result; None if they are equal."""
    value = gm.graph.output_node().args[0]
    if isinstance(value, (tuple, list)) and not _has_nested(value):
        return None if isinstance(value, tuple) else list
    _, spec = graphs.tree_flatten(value)
    return lambda values: graphs.tree_unflatten(values, spec)


def _has_nested(values: Sequence[object]) -> bool:
    return any(isinstance(value, (tuple, list, dict)) for value in values)
