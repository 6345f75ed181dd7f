"""Calls of the library with less Python around them.

    mm(x, w)                  torch's own binding, which resolves its arguments in half the time
    view, transpose, split    no call: a step that needs the tensor gets one in the memory that it
                              is a view of, in one step for any number of views in between

A view stays a library call where its size is known at the call only, where a call writes to its
base, and where it is a result that shares memory with an input or another result: autograd counts
the writes to these together.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.properties import base_of, is_view, mutated_bases
from ctk.compiler.lowering.ir import Program, View

aten = torch.ops.aten

BINDINGS: Mapping[object, Callable[..., Any]] = {
    aten.mm.default: torch.mm,
    aten.addmm.default: torch.addmm,
    aten.bmm.default: torch.bmm,
    aten.baddbmm.default: torch.baddbmm,
    aten.convolution.default: torch.convolution,
}

PRODUCTS = frozenset({aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default})
"""Operators whose results are new tensors, with the layout that torch records, on every device: one
function of torch (a structured kernel's) sets it for both."""


def views_without_calls(gm: GraphModule, program: Program) -> frozenset[str]:
    """Return the names of the views of a graph that need no call of the library."""
    (output,) = gm.graph.find_nodes(op="output")
    results = set(output.all_input_nodes)
    shared = Counter(program.views[n.name].buffer for n in results if n.name in program.views)
    written = mutated_bases(gm.graph)
    found: set[str] = set()
    for node in reversed(gm.graph.nodes):
        if node.op != "call_function" or not is_view(node) or base_of(node) in written:
            continue
        view = program.views.get(node.name)
        if view is None:  # a list of views
            quick = bool(node.users) and all(user.name in found for user in node.users)
        else:
            quick = _is_known(view, node, program)
            if node in results:
                is_own = program.buffers[view.buffer].role in ("kernel", "library")
                quick &= is_own and shared[view.buffer] == 1
        if quick:
            found.add(node.name)
    return frozenset(found)


def _is_known(view: View, node: Node, program: Program) -> bool:
    buffer = program.buffers.get(view.buffer)
    if buffer is None or buffer.name == node.name or buffer.dtype != view.dtype:
        return False
    return all(each.number is not None for each in (*view.shape, *view.strides, view.offset))
