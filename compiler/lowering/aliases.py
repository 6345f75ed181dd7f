"""The base of a buffer that the library made as a view which kernels cannot express.

    v = x.view(int32)          other elements in the memory of x: a buffer `v`, whose base is `x`
    r = view_as_real(z)        z is complex, so it has no buffer: a buffer `r`, whose base is `z`

A step that writes to a base, or to another view of it, keeps its order with each step that touches
the view (`order.py`), and is never fused with one (`groups.py`).
"""

import operator
from collections.abc import Mapping

from torch.fx import Node

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.properties import is_view
from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.lowering.ir import Buffer, View


def viewed(node: Node) -> Node | None:
    """Return the base of a view, also of one of several views (of a `split`)."""
    if node.target is operator.getitem:
        (source,) = node.all_input_nodes
        is_list = isinstance(value_of(source), (list, tuple))
        return viewed(source) if is_list and is_view(source) else None
    if not is_view(node):
        return None
    return next((each for each in node.all_input_nodes if tensor_of(each) is not None), None)


def root_of(node: Node) -> Node:
    """Return the node whose memory a chain of views, and of calls in place, starts from."""
    while True:
        written = mutated_arguments(node)
        source = written[0] if len(written) == 1 else viewed(node)
        if source is None:
            return node
        node = source


def memory_of(
    node: Node, views: Mapping[str, View], buffers: Mapping[str, Buffer]
) -> tuple[str, ...]:
    """Return the names of a node's memory: of its buffer, and of the base of that."""
    view = views.get(node.name)
    if view is not None:
        buffer = buffers.get(view.buffer)
        return (view.buffer, buffer.base) if buffer is not None and buffer.base else (view.buffer,)
    root = root_of(node)
    return (root.name,) if root is node else memory_of(root, views, buffers)


def base_name(buffers: Mapping[str, Buffer], name: str) -> str:
    """Return the name of the memory that a buffer is part of: its own, unless it is a view."""
    return (buffers[name].base if name in buffers else "") or name
