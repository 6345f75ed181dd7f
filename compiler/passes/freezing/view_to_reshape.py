"""Make views such that they may copy where a later pass changes strides.

Rule: `view(x, sizes)` -> `reshape(x, sizes)`. A view asks for strides that allow it, a `reshape`
copies where they do not.
Preconditions: nothing writes to the memory of `x`, which a copy would not share; all sizes are
known (passes that change strides leave others alone). Exact.

Source: `view_to_reshape` of `torch/_inductor/fx_passes/post_grad.py`, which freezing runs first.
That one takes all views.
"""

from functools import partial

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.properties import base_of, mutated_bases
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten


class ViewToReshape(Pass):
    """Turn views into reshapes, which may copy if a later pass changes strides."""

    name = "view_to_reshape"

    def run(self, rewriter: Rewriter) -> None:
        written = mutated_bases(rewriter.graph)
        for node in rewriter.nodes():
            if _is_view(node) and base_of(node) not in written:
                rewriter.rewrite("view(x) -> reshape(x)", [node], partial(_replace, node))


def _is_view(node: Node) -> bool:
    return node.target is aten.view.default and not node.kwargs and _has_known_sizes(node)


def _has_known_sizes(node: Node) -> bool:
    types = [tensor_of(each) for each in (node, node.args[0])]
    return all(each is not None and not any(map(fake.is_symbolic, each.shape)) for each in types)


def _replace(node: Node, _: Graph) -> None:
    node.target = aten.reshape.default


PASS = ViewToReshape()
