"""Outputs of any nesting: autograd dispatch wants a flat tuple, callers what the graph returns."""

from collections.abc import Callable, Sequence
from typing import cast

from torch.fx import GraphModule
from torch.fx.node import Argument

from ctk.compiler.torch_compat import graphs

Restore = Callable[[Sequence[object]], object]


def flatten_outputs(gm: GraphModule) -> Restore | None:
    """Make a graph return a flat tuple, in place.

    Returns:
        What turns that tuple into the graph's own result; None when it was one already.
    """
    output = gm.graph.output_node()
    value = output.args[0]
    if isinstance(value, (tuple, list)) and not any(_is_nested(item) for item in value):
        return None if isinstance(value, tuple) else list
    leaves, restore = graphs.tree_flatten(value)
    output.args = (tuple(cast("list[Argument]", leaves)),)
    graphs.plain_codegen(gm.graph)
    gm.recompile()
    return restore


def _is_nested(value: object) -> bool:
    return isinstance(value, (tuple, list, dict))
